"""Users and their proofs of identity. Pure."""

import re
from dataclasses import dataclass, field
from typing import Final

from ternmq_model.errors import IllegalName, UsageError

ANONYMOUS: Final = "anonymous"
"""Reserved name of callers without identity; grants may name it, no user has it."""

TOKENS_MAX: Final = 2
"""Tokens of a user that are valid at once: the old and the new one of a rotation."""

SUBJECTS_MAX: Final = 16
SUBJECT_CHARS_MAX: Final = 1024
SCRYPT_N_MAX: Final = 1 << 17
SCRYPT_R_MAX: Final = 16
SCRYPT_P_MAX: Final = 4
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_BYTES_LEAST: Final = 16
_BYTES_MAX: Final = 64


def check_user_name(name: str) -> str:
    """Return `name` if a user may have it.

    Raises:
        IllegalName: The name is `anonymous`, empty, longer than 64 characters, or has other
            characters than letters, digits and `_ . -`.
    """
    if name == ANONYMOUS:
        raise IllegalName("user", name, "is reserved for callers without identity")
    if not _NAME.fullmatch(name):
        rule = "must have 1 to 64 letters (a-z, A-Z), digits or _ . - and not begin with . or -"
        raise IllegalName("user", name, rule)
    return name


@dataclass(frozen=True, slots=True)
class TokenHash:
    """Hash of a token, from which nobody can make the token.

    Attributes:
        token_id: Name of the token among those of its user.
        salt: Salt of the hash, 16 to 64 bytes.
        digest: scrypt of the token's secret, 16 to 64 bytes.
        n: Cost of scrypt, a power of two up to 2**17.
        r: Block size of scrypt.
        p: Parallelism of scrypt.
        created_at_ms: Time of creation.
        expires_at_ms: Time from which it is invalid; 0 = never.

    Raises:
        UsageError: A value is out of its bounds.
    """

    token_id: str
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    n: int
    r: int
    p: int
    created_at_ms: int
    expires_at_ms: int = 0

    def __post_init__(self) -> None:
        are_bytes_legal = all(
            _BYTES_LEAST <= len(each) <= _BYTES_MAX for each in (self.salt, self.digest)
        )
        is_cost_legal = (
            2 <= self.n <= SCRYPT_N_MAX
            and not self.n & (self.n - 1)
            and 1 <= self.r <= SCRYPT_R_MAX
            and 1 <= self.p <= SCRYPT_P_MAX
        )
        are_times_legal = min(self.created_at_ms, self.expires_at_ms) >= 0
        if not (_NAME.fullmatch(self.token_id) and are_bytes_legal and is_cost_legal):
            raise UsageError(f"token {self.token_id!r}: its hash is out of bounds")
        if not are_times_legal:
            raise UsageError(f"token {self.token_id!r}: a time is negative")

    def is_valid_at(self, now_ms: int) -> bool:
        """Return whether the token has not expired."""
        return not self.expires_at_ms or now_ms < self.expires_at_ms


@dataclass(frozen=True, slots=True)
class User:
    """A user, with at most two tokens and 16 certificate subjects.

    Raises:
        IllegalName: The name breaks the rules.
        UsageError: There are too many tokens or subjects, or one of them is there twice.
    """

    name: str
    tokens: tuple[TokenHash, ...] = ()
    subjects: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_user_name(self.name)
        ids = {each.token_id for each in self.tokens}
        if len(self.tokens) > TOKENS_MAX:
            raise UsageError(f"user {self.name!r}: at most {TOKENS_MAX} tokens are valid at once")
        if len(ids) < len(self.tokens) or len({*self.subjects}) < len(self.subjects):
            raise UsageError(f"user {self.name!r}: a token or subject is there twice")
        if len(self.subjects) > SUBJECTS_MAX:
            raise UsageError(f"user {self.name!r}: at most {SUBJECTS_MAX} subjects")
        if not all(0 < len(each) <= SUBJECT_CHARS_MAX for each in self.subjects):
            rule = f"a subject has 1 to {SUBJECT_CHARS_MAX} characters"
            raise UsageError(f"user {self.name!r}: {rule}")
