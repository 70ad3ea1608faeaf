"""Delayed messages: the 18 levels, and how what has waited comes into its own queue."""
