"""Commands that run services, or ask whether one serves."""
