"""Retention of log files by age and by the use of the disk."""
