"""Replication of the log: bytes for replicas, and bytes from a master."""
