"""Timed messages: delivered at a time of their sender's choice, up to 3 days ahead."""
