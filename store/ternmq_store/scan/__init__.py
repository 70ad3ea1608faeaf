"""Scans of a store's directory from outside the broker, many messages at once."""
