"""Records of the commit log: their format, for single records and for batches."""
