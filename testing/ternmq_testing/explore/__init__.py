"""Exploration: a scenario under many seeds of schedules and faults, on virtual time."""
