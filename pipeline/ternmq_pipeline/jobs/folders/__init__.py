"""Folders of a job wherever Spark writes: checkpoints, and outputs with their log of files."""
