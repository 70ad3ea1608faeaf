"""Names that nobody else has, for processes that have no `Environment`."""

import secrets


def unique_name(name_bytes: int = 16) -> str:
    """Return so many random bytes as hexadecimal digits, anew also after a fork."""
    return secrets.token_hex(name_bytes)
