"""A cluster as a table, and a clock, for streams without Spark and without brokers."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ternmq_consumer.offsets.offset_lookup import QueueRange
from ternmq_model.errors import TernError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import OffsetRange, Offsets
from ternmq_pipeline.options.source_options import ReadOptions, read_options
from ternmq_pipeline.options.topics import TopicChoice
from ternmq_pipeline.planning.admission import RangeSize
from ternmq_pipeline.planning.snapshot import ClusterSnapshot
from ternmq_pipeline.source.streams.micro_batch_stream import BatchLimit, MicroBatchStream
from tests.support.stores import HandClock

BYTES = 100


class Table:
    """A cluster as a table: what each queue has, and errors that come before that is told."""

    def __init__(self, ranges: Mapping[MessageQueue, tuple[int, int]]) -> None:
        self.ranges = dict(ranges)
        self.brokers = {queue.broker_name for queue in ranges}
        self.missing: set[str] = set()
        self.stores: dict[str, str] = {}
        self.created: dict[tuple[str, str], int] = {}
        self.answered_by_slave: set[str] = set()
        self.errors: list[TernError] = []
        self.committed: list[tuple[str, Offsets]] = []
        self.looks = 0
        self.awaited: list[frozenset[str] | None] = []
        self.is_closed = False

    def snapshot(
        self,
        choice: TopicChoice,
        *,
        include_system: bool = False,
        expected: Iterable[MessageQueue] = (),
        brokers: Collection[str] | None = None,
    ) -> ClusterSnapshot:
        """Tell what the table has, at once, and remember which brokers were waited for."""
        self.looks += 1
        self.awaited.append(None if brokers is None else frozenset(brokers))
        if self.errors:
            raise self.errors.pop(0)
        return ClusterSnapshot(
            {
                queue: QueueRange(QueueOffset(begin), QueueOffset(end))
                for queue, (begin, end) in self.ranges.items()
                if queue.broker_name in self.brokers
            },
            missing=frozenset(self.missing),
            brokers=frozenset(self.brokers),
            answered_by_slave=frozenset(self.answered_by_slave),
            stores={name: self.stores[name] for name in self.brokers & self.stores.keys()},
            created={place: at for place, at in self.created.items() if place[1] in self.brokers},
        )

    def offsets_at(
        self, times_ms: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, QueueOffset]:
        """Tell that each message was stored at the time that its offset is."""
        return {
            queue: QueueOffset(min(at_ms, self.ranges[queue][1]))
            for queue, at_ms in times_ms.items()
        }

    def measure(self, asked: Sequence[tuple[OffsetRange, int]]) -> Sequence[RangeSize]:
        """Tell that each message has 100 bytes."""
        found: list[RangeSize] = []
        for offset_range, bytes_max in asked:
            count = min(
                offset_range.messages,
                -(-bytes_max // BYTES) if bytes_max else offset_range.messages,
            )
            found.append(RangeSize(offset_range.begin + count, count * BYTES))
        return found

    def commit(self, group: str, offsets: Offsets) -> None:
        """Remember it, or fail."""
        if self.errors:
            raise self.errors.pop(0)
        self.committed.append((group, dict(offsets)))

    def close(self) -> None:
        """Remember it."""
        self.is_closed = True


class RestingClock(HandClock):
    """A clock that goes by resting alone."""

    def __init__(self) -> None:
        super().__init__(5_000)

    def rest(self, seconds: float) -> None:
        """Let time go by."""
        self.now_ms += int(seconds * 1_000)


def opened(table: Table, clock: RestingClock | None = None, **options: str) -> MicroBatchStream:
    """Return a stream of `TopicA` over `table`, from its earliest message unless told."""
    return MicroBatchStream(asked(**options), table, clock or RestingClock())


def asked(**options: str) -> ReadOptions:
    """Return a stream's options."""
    given = {"nameserver": "127.0.0.1:9876", "subscribe": "TopicA", "startingOffsets": "earliest"}
    if any(name.startswith("starting") for name in options):
        del given["startingOffsets"]
    return read_options(given | options, streaming=True)


def read_to_the_end(
    table: Table, start: Mapping[str, Any], **options: str
) -> tuple[list[OffsetRange], dict[str, Any]]:
    """Return what a stream reads from `start` on until there is no more, and where that is."""
    progress, read, end = opened(table, None, **options), list[OffsetRange](), dict(start)
    while (following := json.loads(json.dumps(progress.next_end(end, BatchLimit())))) != end:
        again = opened(table, None, **options).offset_ranges(end, following)
        assert progress.offset_ranges(end, following) == again
        read, end = read + again, following
        assert len(read) < 20
    return read, end
