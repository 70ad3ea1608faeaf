"""Queue selection: queues of a topic, selectors, and brokers that are avoided."""
