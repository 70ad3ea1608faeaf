"""Settings of a process: dataclasses read from files, environment and flags."""
