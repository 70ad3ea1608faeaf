"""Pull streams from brokers: one for each broker, with credit for every queue read over it."""
