"""What everybody talks about: messages, records, routes, offsets, errors. Pure."""
