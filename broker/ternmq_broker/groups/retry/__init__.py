"""Retries of messages that could not be consumed, and dead letters."""
