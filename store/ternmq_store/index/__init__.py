"""The index: where messages with a key lie in the log."""
