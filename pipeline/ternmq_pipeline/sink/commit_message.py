"""Commit message of a task to the driver: the half messages that it staged. Pure.

    version 1 · length of the description 4 · description, JSON · staged messages

About 26 bytes for each row, so that a batch of a million rows costs the driver 26 MB.
"""

import json
import struct
from dataclasses import dataclass
from typing import Any, Final

from ternmq_model.errors import UsageError
from ternmq_pipeline.sink.identity import BatchIdentity, PartitionAttempt
from ternmq_producer.staging import StagedMessages, decode_staged, encode_staged

_VERSION: Final = 1
_HEAD: Final = struct.Struct(">BI")


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """Messages that one attempt at one partition staged."""

    part: PartitionAttempt
    group: str
    """Producer group of the half messages."""

    immunity_s: int
    """Time after which the broker rolls the messages back, s."""

    began_at_ms: int
    """Time of the first staging by the task's wall clock, Unix ms."""

    staged: StagedMessages


def encode_part(staged: StagedPartition) -> bytes:
    """Return a commit message for the messages that a task staged."""
    part = staged.part
    description = {
        "query": part.of.query,
        "batch": part.of.batch,
        "partition": part.partition,
        "attempt": part.attempt,
        "group": staged.group,
        "immunity": staged.immunity_s,
        "began": staged.began_at_ms,
    }
    text = json.dumps(description, sort_keys=True, separators=(",", ":")).encode()
    return _HEAD.pack(_VERSION, len(text)) + text + encode_staged(staged.staged)


def decode_part(data: bytes) -> StagedPartition:
    """Return the staged partition that a commit message describes.

    Raises:
        UsageError: The bytes are no commit message, or have another version.
    """
    if len(data) < _HEAD.size or data[0] != _VERSION:
        version = data[0] if data else "none"
        raise UsageError(
            f"a commit message of version {version}: this TernMQ knows {_VERSION}; driver and "
            "executors must run the same one"
        )
    text_end = _HEAD.size + _HEAD.unpack_from(data)[1]
    try:
        fields: dict[str, Any] = json.loads(data[_HEAD.size : text_end])
        part = PartitionAttempt(
            BatchIdentity(fields["query"], fields["batch"]), fields["partition"], fields["attempt"]
        )
        group, immunity_s, began_at_ms = fields["group"], fields["immunity"], fields["began"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"a commit message that cannot be read: {error!r}") from None
    return StagedPartition(part, group, immunity_s, began_at_ms, decode_staged(data[text_end:]))
