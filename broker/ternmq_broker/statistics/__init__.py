"""Counters by topic, queue and group, with rates over a minute, an hour and a day."""
