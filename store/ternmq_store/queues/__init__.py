"""Consume queues: the units that say where a queue's messages lie in the log."""
