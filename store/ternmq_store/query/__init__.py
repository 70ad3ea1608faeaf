"""Queries beside the reads of a queue: by key, unique key, transaction, time and size."""
