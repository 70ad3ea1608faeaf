"""Push consumers: a member of a group that hands messages to listeners, put together here."""
