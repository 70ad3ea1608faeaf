"""Offsets as a stream's checkpoint holds them. Pure.

They are those of `ternmq_pipeline.offsets`. Spark journals the ends of batches only, and asks anew
where a query begins when its first batch is repeated: "latest" would lie further on then, and the
rows between would be lost. So a query begins at `NEW`, which names no queue; its first batch
decides where that is, and its end tells it, as `from`. So does the end of a later batch in which a
queue is read that was not there before: retention may have taken its beginning when that batch is
repeated.

An end also tells whose offsets they are, as `stores`: those of another cluster, or of a broker that
began with an empty directory, are numbers of other messages. So are those of a topic that was
deleted and created again: under `BROKER:TOPIC` the same member tells when each topic was created.
Versions that do not know of that pass over it there, and leave it out of the ends that they tell.
And an end tells, as `parked`, how far queues were read that their topic has no more: the topic may
have them again, with what was read.
"""

from collections.abc import Mapping
from typing import Any, Final

from ternmq_model.errors import UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import VERSION, Offsets, offsets_from_json, offsets_to_json

NEW: Final[Mapping[str, Any]] = {"v": VERSION, "new": True}
"""Begin of a query of which nothing is decided yet. Never in a checkpoint."""

FROM: Final = "from"
PARKED: Final = "parked"
STORES: Final = "stores"
TOPICS: Final = "t"

OffsetJson = Mapping[str, Any]
"""Offsets as Spark hands them over: the JSON object, read."""


def end_to_json(
    end: Offsets,
    *,
    begin: Offsets | None = None,
    parked: Offsets | None = None,
    stores: Mapping[str, str] | None = None,
    created: Mapping[tuple[str, str], int] | None = None,
) -> dict[str, Any]:
    """Return the end of a batch as the checkpoint keeps it.

    Args:
        end: Where it ends.
        begin: Where it began, of queues that its start does not tell.
        parked: Where reading goes on of queues that are not there now.
        stores: Whose offsets they are, by broker.
        created: When their topics were created, as `ClusterSnapshot.created`.
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
    """Return where reading goes on of queues that were not there when `offset_json` was decided."""
    return offsets_from_json({"v": VERSION, TOPICS: offset_json.get(PARKED, {})})


def stores_of(offset_json: OffsetJson) -> dict[str, str]:
    """Return whose offsets those of `offset_json` are, by broker."""
    return {name: store for name, store in _whose(offset_json).items() if ":" not in name}


def created_of(offset_json: OffsetJson) -> dict[tuple[str, str], int]:
    """Return when the topics of `offset_json` were created, as `ClusterSnapshot.created`.

    Versions that did not know of it have told of none.
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
    """Return where the batch from `start` to `end` begins.

    Raises:
        UsageError: One of them is not of this source or of a newer version.
    """
    if start == end:
        return offsets_from_json(end)
    if start == NEW and FROM not in end:
        raise UsageError("the checkpoint's offsets do not tell where their first batch began")
    ended = {} if start == NEW else offsets_from_json(start)
    # Where the batch before ended may be an offset of another store: what this one tells counts.
    return {**ended, **offsets_from_json({**end, TOPICS: end.get(FROM, {})})}
