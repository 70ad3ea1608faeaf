"""The store as its broker drives it: loop, retention, reads, and what the broker appends itself."""
