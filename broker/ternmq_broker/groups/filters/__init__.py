"""Filters at the broker: subscriptions as a read applies them, and the filters of groups."""
