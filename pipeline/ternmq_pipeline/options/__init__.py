"""Options of the source and the sink: read, checked, refused by name."""
