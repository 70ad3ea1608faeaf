"""What the broker stores on its own behalf: records made of records."""
