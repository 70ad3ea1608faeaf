"""Replication of one log and its tables among the members of a broker name."""
