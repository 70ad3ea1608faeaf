"""The NameServer: who serves what, and small settings."""
