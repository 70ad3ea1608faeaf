"""Reading messages: by queue and offset, by time, by key; from memory or from the disk."""
