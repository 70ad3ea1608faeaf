"""The tables of a broker: kept on disk in `config/`, replicated to slaves, and the ground of every other room."""
