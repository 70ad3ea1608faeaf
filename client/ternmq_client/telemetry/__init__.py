"""OpenTelemetry of clients: metrics and traces of their operations."""
