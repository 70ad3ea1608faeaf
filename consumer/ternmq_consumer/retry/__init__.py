"""Retries of messages that could not be consumed: their brokers take them back."""
