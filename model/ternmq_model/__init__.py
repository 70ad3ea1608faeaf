"""The shared vocabulary: messages, records, routes, offsets, errors. Pure."""
