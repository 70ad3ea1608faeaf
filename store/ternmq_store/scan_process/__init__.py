"""Scanning process of a broker: it reads a store's directory and writes Arrow bytes to a pipe."""
