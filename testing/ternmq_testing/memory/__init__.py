"""Network and files of a cluster in memory."""
