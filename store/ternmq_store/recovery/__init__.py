"""Recovery of a store at its opening, after a stop, a crash or damage."""
