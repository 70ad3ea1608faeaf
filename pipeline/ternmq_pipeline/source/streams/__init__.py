"""Streams: what they read next, what their checkpoints hold, how far they are behind."""
