"""The master's side of replication: handshakes, streams to slaves, the in-sync set."""
