"""Offsets in a stream's checkpoint. Pure.

The format is that of `ternmq_pipeline.offsets`, with more keys:

- `from` is the begin of the batch. Spark journals only the ends of batches and asks again for the
  begin of a query when it repeats the first batch. "latest" would then be a later offset, and the
  rows between would be lost. So a query begins at `NEW`, which names no queue; the first batch
  decides its begin and writes it to its end. The end of a later batch has `from` for each new
  queue, because retention may delete the queue's first messages before the batch is repeated.
- `stores` is the id of each broker's store. Offsets of another cluster, or of a broker with a new
  directory, belong to other messages. The key `BROKER:TOPIC` is the creation of a topic: offsets
  before it belong to a deleted topic. Versions without creations ignore these keys and write none.
- `parked` is the offset of each queue that its topic no longer has. The topic may have the queue
  again, with the read messages.
"""

from collections.abc import Mapping
from typing import Any, Final

from ternmq_model.errors import UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import VERSION, Offsets, offsets_from_json, offsets_to_json

NEW: Final[Mapping[str, Any]] = {"v": VERSION, "new": True}
"""Begin of a query before its first batch is decided. Never in a checkpoint."""

FROM: Final = "from"
PARKED: Final = "parked"
STORES: Final = "stores"
TOPICS: Final = "t"

OffsetJson = Mapping[str, Any]
"""Offsets from Spark: a parsed JSON object."""


def end_to_json(
    end: Offsets,
    *,
    begin: Offsets | None = None,
    parked: Offsets | None = None,
    stores: Mapping[str, str] | None = None,
    created: Mapping[tuple[str, str], int] | None = None,
) -> dict[str, Any]:
    """Return the end of a batch for the checkpoint.

    Args:
        end: End of each queue.
        begin: Begin of each queue that the start of the batch does not have.
        parked: Next offset of each queue that its topic does not have now.
        stores: Id of the store of each broker.
        created: Creation of the topics, as in `ClusterSnapshot.created`.
    """
    offset_json = offsets_to_json(end)
    if begin is not None:
        offset_json[FROM] = offsets_to_json(begin)[TOPICS]
    if parked:
        offset_json[PARKED] = offsets_to_json(parked)[TOPICS]
    topics = {f"{name}:{topic}": str(at) for (topic, name), at in (created or {}).items()}
    if whose := {**(stores or {}), **topics}:
        offset_json[STORES] = dict(sorted(whose.items()))
    return offset_json


def parked_of(offset_json: OffsetJson) -> dict[MessageQueue, QueueOffset]:
    """Return the next offset of each queue that its topic did not have at that time."""
    return offsets_from_json({"v": VERSION, TOPICS: offset_json.get(PARKED, {})})


def stores_of(offset_json: OffsetJson) -> dict[str, str]:
    """Return the id of the store of each broker in `offset_json`."""
    return {name: store for name, store in _whose(offset_json).items() if ":" not in name}


def created_of(offset_json: OffsetJson) -> dict[tuple[str, str], int]:
    """Return the creation of the topics of `offset_json`, as in `ClusterSnapshot.created`.

    The result is empty for offsets of older versions.
    """
    created_entries = ((*place.partition(":"), at) for place, at in _whose(offset_json).items())
    return {
        (topic, name): int(at)
        for name, colon, topic, at in created_entries
        if colon and at.isascii() and at.isdigit()
    }


def _whose(offset_json: OffsetJson) -> Mapping[str, str]:
    whose: Mapping[str, str] = offset_json.get(STORES, {})
    return whose


def beginning(start: OffsetJson, end: OffsetJson) -> dict[MessageQueue, QueueOffset]:
    """Return the begin of each queue in the batch from `start` to `end`.

    Raises:
        UsageError: Another source or a newer version wrote one of the two.
    """
    if start == end:
        return offsets_from_json(end)
    if start == NEW and FROM not in end:
        raise UsageError("the checkpoint's offsets do not contain the start of their first batch")
    ended = {} if start == NEW else offsets_from_json(start)
    # The end of the batch before may be an offset of another store, so `from` takes precedence.
    return {**ended, **offsets_from_json({**end, TOPICS: end.get(FROM, {})})}
