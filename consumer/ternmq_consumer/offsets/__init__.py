"""Offsets of a group: their stores, queries of brokers, start offsets and seeks."""
