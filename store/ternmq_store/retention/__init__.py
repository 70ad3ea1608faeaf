"""What goes when it has expired or the disk is full."""
