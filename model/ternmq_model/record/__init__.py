"""The commit log record: its format, one at a time and by the batch."""
