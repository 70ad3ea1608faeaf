"""Consumers: the push consumer of a group, and the pull consumer of assigned queues."""
