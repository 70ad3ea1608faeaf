"""Retries of messages that a listener could not consume: their brokers store them again."""
