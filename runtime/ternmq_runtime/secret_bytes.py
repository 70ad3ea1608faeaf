"""Random bytes for secrets. No seed repeats them, unlike the randomness of an environment."""

import secrets


def secret_bytes(count: int) -> bytes:
    """Return random bytes that nobody can guess, from the operating system."""
    return secrets.token_bytes(count)
