"""Administration: topics, the broker, its store and settings, messages by key and by time."""
