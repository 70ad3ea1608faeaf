"""Rebalance of a group: its members, and the share of the queues that each of them takes."""
