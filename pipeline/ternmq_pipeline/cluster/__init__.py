"""Readers of a cluster's topics, queues and offsets, with and without `await`."""
