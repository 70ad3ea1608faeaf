"""The assembly of a broker: what is built from what, and what differs between its two roles."""
