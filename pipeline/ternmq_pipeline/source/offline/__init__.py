"""Reads of a store's directory, without a broker."""
