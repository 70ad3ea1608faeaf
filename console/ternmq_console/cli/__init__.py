"""The command line itself: lazy groups, shared options, output, exit codes."""
