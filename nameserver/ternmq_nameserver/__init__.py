"""The NameServer: routes of topics, and key-value settings."""
