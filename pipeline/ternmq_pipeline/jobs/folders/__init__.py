"""Folders of a job in any file system of Spark: checkpoints, and outputs with their logs."""
