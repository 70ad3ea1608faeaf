"""The slave's side of replication: the log is followed, and RPCs of masters are refused."""
