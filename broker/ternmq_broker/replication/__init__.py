"""How the members of one broker name keep the same log and the same tables."""
