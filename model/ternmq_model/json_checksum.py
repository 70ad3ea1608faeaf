"""Checksum inside a JSON file, as its last member, so that both change in one step. Pure.

    {
        "offsetTable": {},
        "crc32": "1c291ca3"
    }

The checksum is the CRC-32 of all bytes before that member. RocketMQ and early versions of TernMQ
ignore the member in a read. In a write they omit it or sort it before the others: the file then has
no checksum (docs/formats/table-checksums.md).

Source: RocketMQ `RemotingSerializable.fromJson`, which parses with fastjson's default features; one
of them, `IgnoreNotMatch`, ignores unknown members.
"""

import re
from typing import Any, Final, cast

from ternmq_model.crc32 import crc32

CHECKSUM_MEMBER: Final = "crc32"

_LAST_MEMBER: Final = re.compile(rb',?\n\t"crc32": "([0-9a-f]{8})"\n\}\n\Z')
_BYTES_MAX: Final = 32
"""Most bytes of the last member and the end of the object."""


def add_checksum(text: str) -> bytes:
    """Return the bytes of the JSON object `text` with its checksum as the last member."""
    head = text.rstrip().removesuffix("}").rstrip()
    data = head.encode()
    comma = "" if head.endswith("{") else ","
    return data + f'{comma}\n\t"{CHECKSUM_MEMBER}": "{crc32(data):08x}"\n}}\n'.encode()


def verify_checksum(data: bytes) -> bool:
    """Return whether a JSON file has a checksum.

    Raises:
        ValueError: The checksum does not match.
    """
    match = _LAST_MEMBER.search(data, max(0, len(data) - _BYTES_MAX))
    if match is None:
        return False
    if int(match[1], 16) != crc32(data[: match.start()]):
        raise ValueError("the checksum differs")
    return True


def as_object(value: object, name: str) -> dict[str, Any]:
    """Return `value` after a check that it is an object with text keys.

    Raises:
        ValueError: `value` is something else.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {value!r}, not an object")
    return cast("dict[str, Any]", value)
