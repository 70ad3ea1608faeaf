"""What the driver asks of a cluster."""
