"""Inspection of a store without changing it, and repairs that cannot lose a message."""
