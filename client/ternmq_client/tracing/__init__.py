"""Message traces: who sent a message, who consumed it, when and with what outcome."""
