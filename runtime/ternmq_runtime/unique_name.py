"""Unique names, for processes without an `Environment`."""

import secrets


def unique_name(name_bytes: int = 16) -> str:
    """Return random bytes as hexadecimal digits. A forked child gets other ones."""
    return secrets.token_hex(name_bytes)
