"""What a master does for its slaves: compares logs, feeds them, and waits for those that count."""
