"""Messages on their way, and the batches that they travel in."""
