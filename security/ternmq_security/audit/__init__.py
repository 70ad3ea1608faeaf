"""Audit trail: who did what at a service, as lines of JSON in a file."""
