"""The version of every part: one distribution ships them all."""

__version__ = "0.1.0"


def install_command(extra: str) -> str:
    """Return the command that installs what an extra needs: of a checkout, as it is not on PyPI."""
    return f"pip install '/path/to/ternmq[{extra}]'"
