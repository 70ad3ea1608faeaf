"""The stream of batches to one broker, and the retries of what it did not store."""
