"""Scheduled messages: the 18 delay levels, and messages timed on the wheel."""
