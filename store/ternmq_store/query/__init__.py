"""Queries of a store by key, unique key, transaction, time and size."""
