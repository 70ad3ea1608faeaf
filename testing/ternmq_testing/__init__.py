"""A cluster inside a test: NameServer and brokers in this process, with time that a test moves."""
