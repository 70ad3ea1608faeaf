"""Process queues: queues of a push consumer, their unfinished messages, and their locks."""
