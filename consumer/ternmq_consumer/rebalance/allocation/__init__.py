"""Allocation strategies: a module for each kind of share."""
