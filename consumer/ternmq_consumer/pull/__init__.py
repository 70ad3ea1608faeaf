"""Pull consumers: the queues that an application polls, assigned by it or by its group."""
