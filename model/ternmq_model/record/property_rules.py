"""Rules for the properties of sent records: which no client may send, and which route a record."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ternmq_model.properties import (
    BROKERS_OWN,
    DELAY,
    HIDDEN,
    PAIR_END_BYTE,
    PAIR_END_CODE,
    ROUTING,
    STAGED_FOR,
    TRANSACTION_PREPARED,
    TRANSIENT_PREFIX,
    decode_properties,
    encode_name,
    encode_pair,
)

_NOT_PLAIN: Final = re.compile(
    PAIR_END_BYTE
    + b"(?:%b|RECONSUME_|TRAN_(?:%b)?|TIMER_|REAL_|INNER_|POP_CK|%b)"
    % (
        encode_name(DELAY),
        encode_name(TRANSACTION_PREPARED.removeprefix("TRAN_")),
        b"|".join(re.escape(name.encode()) for name in (*HIDDEN, TRANSIENT_PREFIX, STAGED_FOR)),
    )
)
"""Pattern of a pair with a name of `BROKERS_OWN` or `ROUTING`, or one that is never stored."""

_OF_HALF: Final = PAIR_END_BYTE + encode_name(TRANSACTION_PREPARED)
MARKS_OF_HALVES: Final = frozenset({_OF_HALF, PAIR_END_BYTE + STAGED_FOR.encode()})
"""Matches of `_NOT_PLAIN` that clients may send, in half messages."""

_NO_VALUE: Final = encode_pair("", "")


def is_plain(joined: bytes) -> bool:
    """Return whether encoded properties are the application's own; rarely False for such ones."""
    return _NOT_PLAIN.search(PAIR_END_BYTE + joined) is None


def marks_in(properties: bytes) -> set[bytes]:
    """Return the begins of pairs that are not plain. See `is_plain`."""
    return set(_NOT_PLAIN.findall(PAIR_END_BYTE + properties))


def routed_rows(parts: Sequence[bytes]) -> tuple[int, ...]:
    """Return the indices of the encoded properties with a name of `ROUTING`."""
    return tuple(
        row
        for row, part in enumerate(parts)
        if _is_half(part)
        or (not is_plain(part) and not ROUTING.isdisjoint(decode_properties(part)))
    )


def _is_half(properties: bytes) -> bool:
    """Return whether there is a property TRAN_MSG. The quick test may return False for one."""
    return _OF_HALF in properties and _NO_VALUE not in properties


def property_reason(properties: bytes) -> str:
    """Return the reason against encoded properties; empty = none."""
    if properties and properties[-1] != PAIR_END_CODE:
        return "properties do not end with 0x02"
    if marks_in(properties) <= MARKS_OF_HALVES:
        return ""
    return reserved_reason(decode_properties(properties))


def reserved_reason(properties: Mapping[str, str]) -> str:
    """Return the reason about a property that no client may send; empty = none."""
    for name in properties:
        if name in BROKERS_OWN:
            return f"property {name!r} is reserved for the broker"
        if name.startswith(TRANSIENT_PREFIX):
            return f"property {name!r}: names with this prefix are never stored"
    return ""
