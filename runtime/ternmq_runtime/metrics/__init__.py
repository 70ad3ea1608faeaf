"""Metrics and health of a process: series of its scrapes, and their HTTP port."""
