"""The cluster of a test: its members, its clients, and what a test does with them."""
