"""Message traces: senders and consumers of a message, with times and outcomes."""
