"""Files: the door to the disk, mapped files, small files that are replaced as a whole."""
