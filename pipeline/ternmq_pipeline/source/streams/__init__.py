"""Streams: their micro-batches, the offsets in their checkpoints, and their lag."""
