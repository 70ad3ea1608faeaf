"""Dispatch of appended records to the consume queues and the index."""
