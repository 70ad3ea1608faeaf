"""Disk of the store: file system, mapped files, and small files that are replaced as a whole."""
