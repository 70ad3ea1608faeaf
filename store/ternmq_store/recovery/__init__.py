"""Recovery of a store at its opening from whatever ended its last use."""
