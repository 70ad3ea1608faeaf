"""Opening a store: what the last use left is made good."""
