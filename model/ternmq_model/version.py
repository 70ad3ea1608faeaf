"""Version of all parts, which one distribution contains."""

__version__ = "0.1.0"


def install_command(extra: str) -> str:
    """Return the command that installs an extra, from a checkout."""
    return f"pip install '/path/to/ternmq[{extra}]'"
