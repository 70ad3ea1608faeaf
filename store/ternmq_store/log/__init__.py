"""The commit log: its files, what is flushed of it, what is known of it."""
