"""Sink of Spark: rows become messages, all rows of a batch or none."""
