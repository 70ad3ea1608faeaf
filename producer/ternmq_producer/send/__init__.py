"""The way of a message from a verb of the producer to the stream of its broker."""
