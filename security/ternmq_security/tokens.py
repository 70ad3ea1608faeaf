"""Tokens: their text, and the hash by which a service knows them. Pure.

A token is `tmq.USER.SECRET`; the secret is 32 random bytes in URL-safe base64. Its text is in no
error and no `repr`.
"""

import base64
import hashlib
import hmac
from typing import Final

from ternmq_model.errors import IllegalName, UsageError
from ternmq_security.access.user import TokenHash, check_user_name

PREFIX: Final = "tmq"
SECRET_BYTES: Final = 32
TEXT_CHARS_MAX: Final = 128
SCRYPT_N: Final = 1 << 14
SCRYPT_R: Final = 8
SCRYPT_P: Final = 1
_ID_CHARS: Final = 16
"""64 of the 256 bits that are unknown to others."""


def new_token(
    user: str, random_bytes: bytes, salt: bytes, now_ms: int, expires_at_ms: int = 0
) -> tuple[str, TokenHash]:
    """Return the text of a new token, and its hash. Blocks for about 50 ms.

    Args:
        user: Name of the user.
        random_bytes: 32 bytes from the system's random source.
        salt: 16 to 64 other random bytes.
        now_ms: Wall clock, ms.
        expires_at_ms: Time from which the token is invalid, ms; 0 = never.

    Raises:
        IllegalName: The name of the user breaks the rules.
        UsageError: The bytes have another length.
    """
    check_user_name(user)
    if len(random_bytes) != SECRET_BYTES:
        raise UsageError(f"a token needs {SECRET_BYTES} random bytes")
    secret = base64.urlsafe_b64encode(random_bytes).decode().rstrip("=")
    text = f"{PREFIX}.{user}.{secret}"
    digest = _scrypt(text, salt, SCRYPT_N, SCRYPT_R, SCRYPT_P)
    return text, TokenHash(
        token_id_of(text), salt, digest, SCRYPT_N, SCRYPT_R, SCRYPT_P, now_ms, expires_at_ms
    )


def user_of(text: str) -> str:
    """Return the name of the user that a token is of, which is not proved by that.

    Raises:
        UsageError: The text is no token.
    """
    prefix, _, rest = text.partition(".")
    user, _, secret = rest.rpartition(".")
    if prefix == PREFIX and secret and len(text) <= TEXT_CHARS_MAX and text.isascii():
        try:
            return check_user_name(user)
        except IllegalName:
            pass  # its text would be part of the error
    raise UsageError(f"the token is malformed: it must be {PREFIX}.USER.SECRET")


def token_id_of(text: str) -> str:
    """Return the name of a token among those of its user, which everybody may see.

    Texts that are no token of a user are told by it without the 50 ms of `matches`.
    """
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_CHARS]


def matches(text: str, token: TokenHash) -> bool:
    """Return whether `token` is the hash of `text`, expired or not. Blocks for about 50 ms."""
    if len(text) > TEXT_CHARS_MAX or not text.isascii():
        return False
    digest = _scrypt(text, token.salt, token.n, token.r, token.p)
    return hmac.compare_digest(digest, token.digest)


def _scrypt(text: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    # OpenSSL needs 128 r (n + p + 2) bytes, and refuses above 32 MiB by default.
    memory = 128 * r * (n + p + 2) + (1 << 20)
    return hashlib.scrypt(text.encode(), salt=salt, n=n, r=r, p=p, maxmem=memory, dklen=32)
