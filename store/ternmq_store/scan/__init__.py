"""Reading many messages of a store's directory at once, from outside of the broker."""
