"""Pulls: streams and single ones, long polling, and what an answer tells beside messages."""
