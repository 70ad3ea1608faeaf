"""Shared vocabulary: messages, records, routes, offsets, errors. Pure."""
