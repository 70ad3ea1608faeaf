"""Listener calls: dispatch of messages to workers, and services that process the outcome."""
