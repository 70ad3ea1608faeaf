"""The tables of a broker: kept on disk, replicated to slaves, and the ground of all its rooms."""
