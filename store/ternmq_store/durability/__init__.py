"""Durability of an open store: commits, flushes, checkpoints, disk probes and missing files."""
