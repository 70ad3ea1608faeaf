"""The table of users and permissions, and its JSON form. Pure."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from ternmq_model.errors import AccessNotFound, UsageError
from ternmq_model.json_checksum import add_checksum, as_object, verify_checksum
from ternmq_model.permission import Action, ResourceKind
from ternmq_security.access.grants import Effect, Grant, ResourcePattern
from ternmq_security.access.user import ANONYMOUS, TokenHash, User

FORMAT_VERSION: Final = 1
USERS_MAX: Final = 10_000
GRANTS_MAX: Final = 100_000
DENIED_MAX: Final = 10_000
JSON_BYTES_MAX: Final = 3 << 20
VERSION_MAX: Final = (1 << 63) - 1
RECOVERY_VERSIONS: Final = 1000
"""Versions that a recovery leaps: changes at other NameServers that the recovered one lacks."""


class Doubt(StrEnum):
    """Reason why a service does not know whether users exist; it refuses every call meanwhile."""

    NONE = "none"
    """The service knows it."""

    UNASKED = "unasked"
    """No NameServer has answered yet."""

    REFUSED = "refused"
    """Users exist, and the service may not read the table. Only a table with users ends this."""


@dataclass(frozen=True)
class AccessTable:
    """Users, grants and denied certificates of a cluster; a change returns another table.

    At most 10,000 users, 100,000 grants, 10,000 denied subjects and serials each, and 3 MiB of
    JSON. While it has no user, everything is allowed to everybody.

    Raises:
        UsageError: A limit is exceeded, a user, subject or grant is there twice, or a grant names
            no user.
    """

    version: int = 0
    users: tuple[User, ...] = ()
    grants: tuple[Grant, ...] = ()
    denied_subjects: tuple[str, ...] = ()
    denied_serials: tuple[str, ...] = ()
    origin: str = ""
    """Random text of the first administrator's creation. Tables of another origin are those of
    another cluster, or of a NameServer that lost its own: no service takes them for its own."""

    doubt: Doubt = Doubt.NONE
    """Set in the place of a table that a service does not know."""

    def __post_init__(self) -> None:
        users = tuple(sorted(self.users, key=lambda each: each.name))
        object.__setattr__(self, "users", users)
        for field in ("grants", "denied_subjects", "denied_serials"):
            object.__setattr__(self, field, tuple(sorted(getattr(self, field), key=str)))
        if not 0 <= self.version <= VERSION_MAX:
            raise UsageError(f"version {self.version} of the table is out of bounds")
        for rows, most, kind in (
            (self.users, USERS_MAX, "users"),
            (self.grants, GRANTS_MAX, "grants"),
            (self.denied_subjects, DENIED_MAX, "denied subjects"),
            (self.denied_serials, DENIED_MAX, "denied serials"),
        ):
            if len(rows) > most:
                raise UsageError(f"{len(rows)} {kind}: the table has at most {most}")
            if len({*rows}) < len(rows):
                raise UsageError(f"{kind} of the table: one is there twice")
        if len(self._by_name) < len(self.users):
            raise UsageError("a user is there twice")
        subjects = [subject for user in self.users for subject in user.subjects]
        if len({*subjects}) < len(subjects):
            raise UsageError("two users have the same subject")
        for grant in self.grants:
            if grant.user != ANONYMOUS and grant.user not in self._by_name:
                raise AccessNotFound(f"no user {grant.user!r} exists")

    @cached_property
    def _by_name(self) -> dict[str, User]:
        return {each.name: each for each in self.users}

    @cached_property
    def _holders(self) -> dict[str, str]:
        return {subject: user.name for user in self.users for subject in user.subjects}

    @cached_property
    def _denied(self) -> frozenset[str]:
        return frozenset({*self.denied_subjects, *self.denied_serials})

    @cached_property
    def _grants_by_user(self) -> dict[str, list[Grant]]:
        found: dict[str, list[Grant]] = {}
        for grant in self.grants:
            found.setdefault(grant.user, []).append(grant)
        return found

    @cached_property
    def _json(self) -> bytes:
        content = {
            "format": FORMAT_VERSION,
            "version": self.version,
            "users": [_user_to_json(each) for each in self.users],
            "grants": [
                [each.user, each.effect, each.action, str(each.pattern)] for each in self.grants
            ],
            "denied_subjects": self.denied_subjects,
            "denied_serials": self.denied_serials,
            "origin": self.origin,
            "doubt": self.doubt,
        }
        data = add_checksum(json.dumps(content, separators=(",", ":")))
        if len(data) > JSON_BYTES_MAX:
            raise UsageError(f"the table has {len(data)} bytes, at most {JSON_BYTES_MAX} fit")
        return data

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the JSON form."""
        return hashlib.sha256(self.to_json()).digest()

    def to_json(self) -> bytes:
        """Return the content of `access.json`.

        Raises:
            UsageError: The content has more than 3 MiB.
        """
        return self._json

    def user(self, name: str) -> User | None:
        """Return a user; None when there is none of that name."""
        return self._by_name.get(name)

    def holder_of(self, subject: str) -> str | None:
        """Return the user with the subject of a certificate; None when no user has it."""
        return self._holders.get(subject)

    def denies(self, subject: str, serial: int) -> bool:
        """Return whether the subject or the serial number of a certificate is denied."""
        return subject in self._denied or serial_text(serial) in self._denied

    def grants_of(self, user: str) -> tuple[Grant, ...]:
        """Return the grants of a user, or of `anonymous`."""
        return tuple(self._grants_by_user.get(user, ()))

    def check_administrator(self) -> None:
        """Check that one user can change the table, unless there are no users.

        Such a user has `admin` on the cluster, and a token or a subject that is not denied.

        Raises:
            UsageError: There is none.
        """
        if self.users and not any(map(self._is_administrator, self.users)):
            raise UsageError(
                "nobody could change users and permissions any more: one user with a token or"
                " certificate must keep admin on the cluster"
            )

    def check_replacement_of(self, former: "AccessTable") -> None:
        """Check that an administrator may replace `former` by this table.

        Raises:
            UsageError: The version is not one of the next 1,000, the origin differs, the last user
                or the last administrator is missing, or the JSON form has more than 3 MiB.
        """
        steps = self.version - former.version
        if not 0 < steps <= RECOVERY_VERSIONS or self.doubt is not Doubt.NONE:
            raise UsageError(f"version {self.version} does not follow {former.version}")
        self.check_administrator()
        if former.users and not self.users:
            raise UsageError("the last user cannot be removed: everything would be allowed to all")
        if (former.users and self.origin != former.origin) or (self.users and not self.origin):
            raise UsageError("the table has another origin, or none")
        self.to_json()

    def _is_administrator(self, user: User) -> bool:
        if not user.tokens and not {*user.subjects} - {*self.denied_subjects}:
            return False
        effects = {
            each.effect
            for each in self.grants_of(user.name)
            if each.action is Action.ADMIN and each.pattern.kind in (None, ResourceKind.CLUSTER)
        }
        return effects == {Effect.ALLOW}

    def _changed(self, **fields: Any) -> "AccessTable":
        table = replace(self, version=self.version + 1, **fields)
        table.check_replacement_of(self)
        return table

    def existing(self, name: str) -> User:
        """Return a user.

        Raises:
            AccessNotFound: There is none of that name.
        """
        user = self.user(name)
        if user is None:
            raise AccessNotFound(f"no user {name!r} exists")
        return user

    def _replacing(self, user: User) -> "AccessTable":
        others = (each for each in self.users if each.name != user.name)
        return self._changed(users=(*others, user))

    def with_user(self, user: User) -> "AccessTable":
        """Return a table with another user; the first one comes by `first_administrator`.

        Raises:
            UsageError: The user exists, or does not fit, or would be the first.
        """
        if self.user(user.name) is not None:
            raise UsageError(f"user {user.name!r} exists")
        return self._changed(users=(*self.users, user))

    def without_user(self, name: str) -> "AccessTable":
        """Return a table without a user and its grants.

        Raises:
            AccessNotFound: There is no such user.
            UsageError: The last administrator would be gone.
        """
        gone = self.existing(name)
        return self._changed(
            users=tuple(each for each in self.users if each is not gone),
            grants=tuple(each for each in self.grants if each.user != name),
        )

    def with_token(self, name: str, token: TokenHash, now_ms: int) -> "AccessTable":
        """Return a table with another token of a user; its expired ones go.

        Raises:
            AccessNotFound: There is no such user.
            UsageError: Two of its tokens are valid.
        """
        user = self.existing(name)
        valid = tuple(each for each in user.tokens if each.is_valid_at(now_ms))
        return self._replacing(replace(user, tokens=(*valid, token)))

    def without_token(self, name: str, token_id: str) -> "AccessTable":
        """Return a table without a token.

        Raises:
            AccessNotFound: There is no such user or token.
            UsageError: The last administrator needs it.
        """
        user = self.existing(name)
        kept = tuple(each for each in user.tokens if each.token_id != token_id)
        if len(kept) == len(user.tokens):
            raise AccessNotFound(f"user {name!r} has no token {token_id!r}")
        return self._replacing(replace(user, tokens=kept))

    def with_subjects(
        self, name: str, *, added: Iterable[str] = (), removed: Iterable[str] = ()
    ) -> "AccessTable":
        """Return a table with other subjects of a user; those that it has may be added again.

        Raises:
            AccessNotFound: There is no such user, or it has no such subject.
            UsageError: Another user has the subject, there are too many, or the last administrator
                needs it.
        """
        user, gone = self.existing(name), {*removed}
        if missing := sorted(gone - {*user.subjects}):
            raise AccessNotFound(f"user {name!r} has no subject {missing[0]!r}")
        subjects = dict.fromkeys([*user.subjects, *added])
        kept = tuple(each for each in subjects if each not in gone)
        return self if kept == user.subjects else self._replacing(replace(user, subjects=kept))

    def with_grant(self, grant: Grant) -> "AccessTable":
        """Return a table with a grant; this table when it has it.

        Raises:
            AccessNotFound: There is no such user.
            UsageError: The grant denies the last administrator.
        """
        return self if grant in self.grants else self._changed(grants=(*self.grants, grant))

    def without_grant(self, grant: Grant) -> "AccessTable":
        """Return a table without a grant.

        Raises:
            AccessNotFound: There is no such grant.
            UsageError: The last administrator needs it.
        """
        if grant not in self.grants:
            raise AccessNotFound(f"no grant {str(grant)!r} exists")
        return self._changed(grants=tuple(each for each in self.grants if each != grant))

    def with_denied_certificate(self, *, subject: str = "", serial: str = "") -> "AccessTable":
        """Return a table that denies a subject, a serial number (hexadecimal), or both.

        Raises:
            UsageError: The last administrator needs the subject, or the serial number is none.
        """
        subjects = {*self.denied_subjects, subject} - {""}
        serials = {*self.denied_serials, *_serials(serial)}
        if (subjects, serials) == ({*self.denied_subjects}, {*self.denied_serials}):
            return self
        return self._changed(denied_subjects=tuple(subjects), denied_serials=tuple(serials))

    def without_denied_certificate(self, *, subject: str = "", serial: str = "") -> "AccessTable":
        """Return a table that no longer denies a subject or a serial number.

        Raises:
            AccessNotFound: One of them is not denied.
            UsageError: The serial number is none.
        """
        subjects, serials = {subject} - {""}, {*_serials(serial)}
        missing = sorted(subjects - {*self.denied_subjects} | serials - {*self.denied_serials})
        if missing:
            raise AccessNotFound(f"certificate {missing[0]!r} is not denied")
        return self._changed(
            denied_subjects=tuple({*self.denied_subjects} - subjects),
            denied_serials=tuple({*self.denied_serials} - serials),
        )


def serial_text(serial: int) -> str:
    """Return a serial number as the table has it: hexadecimal, in small letters."""
    return f"{serial:x}"


def _serials(text: str) -> tuple[str, ...]:
    """Return the serial number that a user wrote, with or without colons; none for no text."""
    if not text:
        return ()
    try:
        return (serial_text(int(text.replace(":", ""), 16)),)
    except ValueError:
        raise UsageError(f"serial number {text!r} is not hexadecimal") from None


def first_administrator(table: AccessTable, user: User, origin: str) -> AccessTable:
    """Return a table with its first user, who has `admin` on every resource.

    Args:
        table: Table without users.
        user: First user.
        origin: Random text. See `AccessTable.origin`.

    Raises:
        UsageError: The table has users, or the user has neither a token nor a subject.
    """
    if table.users:
        raise UsageError("the table has users: an administrator creates the next one")
    grant = Grant(user.name, Effect.ALLOW, Action.ADMIN, ResourcePattern(None))
    changed = replace(
        table,
        version=table.version + 1,
        users=(user,),
        grants=(*table.grants, grant),
        origin=origin,
    )
    changed.check_administrator()
    return changed


def recovered(table: AccessTable, name: str, token: TokenHash, origin: str) -> AccessTable:
    """Return a table in which a user is an administrator with this token and nothing else.

    Its version is above that of every copy of the table, so that this one wins.

    Raises:
        IllegalName: The name breaks the rules.
        UsageError: The table has no users, and no doubt that there are any: nobody is refused.
    """
    if not table.users and table.doubt is Doubt.NONE:
        raise UsageError("there are no users: everything is allowed to everybody")
    return replace(
        table,
        doubt=Doubt.NONE,
        origin=table.origin or origin,
        version=table.version + RECOVERY_VERSIONS,
        users=(*(each for each in table.users if each.name != name), User(name, (token,))),
        grants=(
            *(each for each in table.grants if each.user != name),
            Grant(name, Effect.ALLOW, Action.ADMIN, ResourcePattern(None)),
        ),
    )


def access_table_from_json(data: bytes) -> AccessTable:
    """Return the table that an `access.json` or a message holds.

    Raises:
        ValueError: The content is invalid, too large or of a later format, has an unknown key, or
            its checksum differs.
    """
    if len(data) > JSON_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes: a table has at most {JSON_BYTES_MAX}")
    if not verify_checksum(data):
        raise ValueError("the table has no checksum")
    content = as_object(json.loads(data), "the table")
    if content.get("format") != FORMAT_VERSION:
        raise ValueError(f"format {content.get('format')!r}: this program reads {FORMAT_VERSION}")
    try:
        _check_keys(content, _TABLE_KEYS, "the table", optional=("crc32",))
        return AccessTable(
            version=_of_kind(content["version"], int),
            users=tuple(map(_user_from_json, _of_kind(content["users"], list))),
            grants=tuple(map(_grant_from_json, _of_kind(content["grants"], list))),
            denied_subjects=_texts(content["denied_subjects"]),
            denied_serials=_texts(content["denied_serials"]),
            origin=_of_kind(content["origin"], str),
            doubt=Doubt(content["doubt"]),
        )
    except (UsageError, RecursionError) as error:
        raise ValueError(f"the table is wrong: {error}") from None


_TABLE_KEYS: Final = (
    "format", "version", "users", "grants", "denied_subjects", "denied_serials", "origin", "doubt",
)  # fmt: skip
_USER_KEYS: Final = ("name", "tokens", "subjects")
_TOKEN_TEXTS: Final = ("id", "salt", "digest")
_TOKEN_NUMBERS: Final = ("n", "r", "p", "created_at_ms", "expires_at_ms")


def _check_keys(
    content: dict[str, Any], keys: Iterable[str], where: str, *, optional: Iterable[str] = ()
) -> None:
    wrong = {*content} - {*optional} ^ {*keys}
    if wrong:
        raise ValueError(f"{where}: unknown or missing keys {sorted(wrong)}")


def _of_kind(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"a {kind.__name__} is expected where the table has another type")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_of_kind(each, str) for each in _of_kind(value, list))


def _user_to_json(user: User) -> dict[str, Any]:
    tokens = [
        {
            "id": each.token_id,
            "salt": each.salt.hex(),
            "digest": each.digest.hex(),
            "n": each.n,
            "r": each.r,
            "p": each.p,
            "created_at_ms": each.created_at_ms,
            "expires_at_ms": each.expires_at_ms,
        }
        for each in user.tokens
    ]
    return {"name": user.name, "tokens": tokens, "subjects": user.subjects}


def _user_from_json(value: Any) -> User:
    content = as_object(value, "a user")
    _check_keys(content, _USER_KEYS, "a user")
    tokens = tuple(map(_token_from_json, _of_kind(content["tokens"], list)))
    return User(_of_kind(content["name"], str), tokens, _texts(content["subjects"]))


def _token_from_json(value: Any) -> TokenHash:
    content = as_object(value, "a token")
    _check_keys(content, (*_TOKEN_TEXTS, *_TOKEN_NUMBERS), "a token")
    token_id, salt, digest = (_of_kind(content[key], str) for key in _TOKEN_TEXTS)
    numbers = (_of_kind(content[key], int) for key in _TOKEN_NUMBERS)
    return TokenHash(token_id, bytes.fromhex(salt), bytes.fromhex(digest), *numbers)


def _grant_from_json(value: Any) -> Grant:
    fields = _texts(value)
    if len(fields) != 4:
        raise ValueError("a grant has a user, an effect, an action and a resource")
    user, effect, action, resource = fields
    return Grant(user, Effect(effect), Action(action), ResourcePattern.parse(resource))
