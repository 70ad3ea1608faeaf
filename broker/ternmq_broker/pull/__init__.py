"""Pulls: streams and single reads, long polling, and corrections of offsets."""
