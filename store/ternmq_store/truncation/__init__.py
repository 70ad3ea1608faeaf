"""Truncation of a closed store's log."""
