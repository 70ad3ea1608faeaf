"""The command line, and the composition of everything else."""
