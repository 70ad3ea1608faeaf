"""Process queues: the queues that a push consumer owns, their messages in hand, and their locks."""
