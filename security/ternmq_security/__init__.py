"""Security of services: users with their tokens and permissions."""
