"""Scans of a store's directory from outside of the broker, many messages at once."""
