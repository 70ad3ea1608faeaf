"""Pull consumers: queues that an application polls, assigned by itself or by its group."""
