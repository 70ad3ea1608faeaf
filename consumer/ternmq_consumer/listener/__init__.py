"""Listener calls: the dispatch of messages in hand to workers, and the services that end it."""
