"""The commit log: its files and their allocation, flush tasks, checkpoint and notes."""
