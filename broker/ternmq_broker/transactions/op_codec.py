"""Op messages: the list of half messages that are done with. Pure.

RocketMQ 5 writes the queue offsets in decimal, each with a comma behind it; RocketMQ 4 one of them,
without. Both are read.

Source: RocketMQ `TransactionalMessageUtil`, `TransactionalMessageServiceImpl.getOpMessage`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from ternmq_model.offsets import QueueOffset

OP_TAG: Final = "d"
"""Tag of an op message that takes half messages away; RocketMQ knows no other."""

_DIGITS_MAX: Final = 19


def encode_ops(offsets: Iterable[QueueOffset]) -> bytes:
    """Return the body of an op message that names these half messages."""
    return "".join([f"{offset}," for offset in offsets]).encode()


def decode_ops(body: bytes) -> Sequence[QueueOffset]:
    """Return the half messages that an op message names. What is no number is passed over."""
    return [
        QueueOffset(int(part))
        for part in body.split(b",")
        if part.isdigit() and len(part) <= _DIGITS_MAX
    ]


def ops_bytes(offset: QueueOffset) -> int:
    """Return how many bytes of an op message's body name this half message."""
    return len(str(offset)) + 1
