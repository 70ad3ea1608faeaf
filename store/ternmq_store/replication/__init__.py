"""The log as replicas see it: bytes to pass on, and bytes that were passed on."""
