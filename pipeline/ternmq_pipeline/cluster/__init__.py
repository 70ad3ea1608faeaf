"""Readers of a cluster: what it has, for callers with and without `await`."""
