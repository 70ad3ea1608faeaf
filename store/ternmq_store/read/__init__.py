"""Reads of queues: from memory at once, from the disk in another thread."""
