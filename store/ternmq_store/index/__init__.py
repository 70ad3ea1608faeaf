"""The index of message keys: log offsets of the messages with a key."""
