"""Replies to requests: passed on to who waits for them."""
