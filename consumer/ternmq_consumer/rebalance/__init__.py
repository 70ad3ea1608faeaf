"""Rebalance of a group: its members, and the share of each member in the queues."""
