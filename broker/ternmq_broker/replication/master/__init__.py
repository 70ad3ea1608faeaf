"""The master's side of replication: handshakes, logs sent to slaves, the in-sync set."""
