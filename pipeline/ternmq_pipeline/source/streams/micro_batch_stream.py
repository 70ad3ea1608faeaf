"""State of a stream between Spark's calls: next offsets, ranges of a batch, commits."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ternmq_model.clock import Clock
from ternmq_model.errors import TernError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import OffsetRange, Offsets, offsets_from_json, offsets_to_json
from ternmq_pipeline.options.source_options import CommitMode, ReadOptions, TriggerLimits, View
from ternmq_pipeline.options.topics import TopicChoice
from ternmq_pipeline.planning.admission import RangeSize, TriggerState, admit, targets_of
from ternmq_pipeline.planning.data_loss import ReplacedQueues, replaced
from ternmq_pipeline.planning.offset_ranges import offset_ranges, split
from ternmq_pipeline.planning.offset_resolution import starting_offsets, times_of
from ternmq_pipeline.planning.partition_numbers import check_partition_numbers
from ternmq_pipeline.planning.snapshot import ClusterSnapshot
from ternmq_pipeline.source.streams.checkpoint_offsets import (
    NEW,
    OffsetJson,
    beginning,
    created_of,
    end_to_json,
    parked_of,
    stores_of,
)

logger = logging.getLogger(__name__)


class StreamCluster(Protocol):
    """Questions of a stream to a cluster: `BlockingClusterReader` answers them."""

    def snapshot(
        self,
        choice: TopicChoice,
        *,
        include_system: bool = False,
        expected: Iterable[MessageQueue] = (),
        brokers: Collection[str] | None = None,
    ) -> ClusterSnapshot:
        """Return what the chosen topics' queues have now; what is expected is looked for."""
        ...

    def offsets_at(
        self, times_ms: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, QueueOffset]:
        """Return each queue's first message stored at its time or later, else its end."""
        ...

    def measure(self, asked: Sequence[tuple[OffsetRange, int]]) -> Sequence[RangeSize]:
        """Return the bytes of ranges, each up to the message that reaches its number of them."""
        ...

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit `offsets` for `group` at the brokers."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """Limits of Spark's engine on a batch."""

    all_available: bool = False
    """Read all available messages and ignore the options' limits."""

    offsets_max: int | None = None
    bytes_max: int | None = None

    def with_options(self, limits: TriggerLimits) -> TriggerLimits:
        """Return the lower of the options' and the engine's limits."""
        return replace(
            limits,
            offsets_max=_tighter(limits.offsets_max, self.offsets_max),
            bytes_max=_tighter(limits.bytes_max, self.bytes_max),
        )


class MicroBatchStream:
    """State of a query's source during one run.

    Owner: the reader in Spark's process for the query's source. The offsets that the stream returns
    hold all state that must survive the process.

    Args:
        options: Options of the source, with topics.
        cluster: Open reader of the cluster. This object closes it.
    """

    def __init__(self, options: ReadOptions, cluster: StreamCluster, clock: Clock) -> None:
        self._options = options
        self._cluster = cluster
        self._clock = clock
        self._targets: Offsets | None = None
        self._latest: dict[str, Any] | None = None
        self._planned: tuple[OffsetJson, ClusterSnapshot] | None = None
        self._batches = 0
        self._batch_at_ms = clock.monotonic_ms()
        self._warned: frozenset[str] = frozenset()

    def next_end(self, start: OffsetJson, limit: BatchLimit) -> dict[str, Any]:
        """Return the end of the batch that begins at `start`; `start` = no batch now.

        The first batch of a query may be empty: it writes the begin of the query to the checkpoint.

        Raises:
            DataLost: Messages from `start` on are deleted, or their queue is gone.
            UsageError: A topic or position of the options does not exist.
            TernError: The cluster does not answer.
        """
        is_first = start == NEW
        begin = {} if is_first else offsets_from_json(start)
        parked = parked_of(start)
        waits = self._options.fail_on_data_loss
        snapshot = self._look(begin, None if is_first else _brokers(begin) if waits else ())
        if is_first:
            begin = self._starting(snapshot)
        elif not self._batches:
            self._aim_at_those_that_were_away(begin, snapshot)
        gone = self._replaced(parked | begin, start, snapshot)
        parked = {queue: parked[queue] for queue in parked.keys() - gone.queues}
        back = {queue: parked[queue] for queue in parked.keys() & snapshot.ranges.keys()}
        begin = {queue: begin[queue] for queue in begin.keys() - gone.queues} | back
        now_ms = self._clock.monotonic_ms()
        trigger = TriggerState(
            waited_ms=now_ms - self._batch_at_ms,
            turn=self._batches,
            targets=self._targets,
            all_available=limit.all_available,
        )
        admitted = admit(
            begin,
            snapshot,
            limit.with_options(self._options.limits),
            trigger=trigger,
            measure=self._cluster.measure,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        self._warn([*gone.warnings, *admitted.warnings])
        if admitted.end == begin and not is_first and not gone.queues:
            return dict(start)
        self._batches += 1
        self._batch_at_ms = now_ms
        untold = _beginnings(begin, admitted.end, snapshot, gone.queues) | back
        parked = _parked(parked | begin, admitted.end, snapshot)
        end = end_to_json(
            admitted.end,
            begin=begin if is_first else untold or None,
            parked=parked,
            stores=_stores([*admitted.end, *parked], start, snapshot),
            created=_created([*admitted.end, *parked], start, snapshot),
        )
        self._planned = (end, snapshot)
        return end

    def latest(self) -> dict[str, Any] | None:
        """Return the ends of the queues in the last snapshot; None = no snapshot yet."""
        return self._latest

    def aim_at_present(self) -> None:
        """Set the present ends of the queues as the targets of this run.

        Raises:
            TernError: The cluster does not answer, or a topic is missing.
        """
        snapshot = self._look({}, None if self._options.fail_on_data_loss else ())
        self._targets = targets_of(snapshot)

    def offset_ranges(self, start: OffsetJson, end: OffsetJson) -> list[OffsetRange]:
        """Return the disjoint offset ranges of the batch from `start` to `end`, one for each task.

        Raises:
            DataLost: A queue has lost messages of the batch.
            TernError: The cluster does not answer.
        """
        options = self._options
        begin, until = beginning(start, end), offsets_from_json(end)
        read = {queue: until[queue] for queue in until if until[queue] != begin.get(queue)}
        if not read:
            return []
        snapshot = self._snapshot_of(end, read)
        gone = self._replaced(read, end, snapshot)
        planned = offset_ranges(
            begin,
            {queue: read[queue] for queue in read.keys() - gone.queues},
            snapshot,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        self._warn([*gone.warnings, *planned.warnings])
        return split(
            planned.offset_ranges,
            partitions_min=options.partitions_min,
            records_max=options.partition_records_max,
        )

    def done(self, end: OffsetJson) -> None:
        """Commit the completed offsets `end` for the option's group.

        A failure is only logged: the checkpoint, not the group, holds the position of a query.
        """
        group = self._options.commit_group
        if not group or self._options.commit_mode is not CommitMode.SPARK:
            return
        offsets = offsets_from_json(end)
        if self._planned is not None:
            # The group must not skip messages of a topic that was created again meanwhile.
            planned, seen = (stores_of(end), created_of(end)), self._planned[1]
            gone = replaced(offsets, *planned, seen, fail_on_data_loss=False)
            offsets = {queue: offsets[queue] for queue in offsets.keys() - gone.queues}
        try:
            self._cluster.commit(group, offsets)
        except TernError as error:
            logger.warning("stream progress not committed group=%s err=%s", group, error)

    def close(self) -> None:
        """Close the connections. Safe to repeat."""
        self._cluster.close()

    def _starting(self, snapshot: ClusterSnapshot) -> dict[MessageQueue, QueueOffset]:
        options = self._options
        times_ms = times_of(options.starting, snapshot)
        found = starting_offsets(
            options.starting,
            snapshot,
            self._cluster.offsets_at(times_ms) if times_ms else {},
            strategy=options.starting_strategy,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        self._warn(found.warnings)
        return found.offsets

    def _replaced(
        self, offsets: Offsets, offset_json: OffsetJson, snapshot: ClusterSnapshot
    ) -> ReplacedQueues:
        return replaced(
            offsets,
            stores_of(offset_json),
            created_of(offset_json),
            snapshot,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

    def _aim_at_those_that_were_away(self, begin: Offsets, snapshot: ClusterSnapshot) -> None:
        """Add targets of queues whose broker was away at the begin of a run with targets."""
        if self._targets is not None:
            ends = targets_of(snapshot)
            known = {queue: ends[queue] for queue in begin if queue in ends}
            self._targets = {**known, **self._targets}

    def _look(
        self, needed: Collection[MessageQueue], brokers: Collection[str] | None
    ) -> ClusterSnapshot:
        """Return a snapshot, after retries of at most `retryTimeout`.

        Args:
            needed: Queues of earlier batches.
            brokers: Brokers to wait for. Queues of other brokers keep their offset until their
                broker returns. None = all brokers.
        """
        options = self._options
        topics = options.topics
        assert topics is not None, "a stream has topics: read_options sees to it"
        snapshot = self._cluster.snapshot(
            topics, include_system=options.include_system_topics, expected=needed, brokers=brokers
        )
        if options.view is View.KAFKA:
            check_partition_numbers(queue.broker_name for queue in snapshot.ranges)
        self._latest = offsets_to_json(targets_of(snapshot))
        return snapshot

    def _snapshot_of(self, end: OffsetJson, needed: Collection[MessageQueue]) -> ClusterSnapshot:
        """Return the snapshot by which `end` was decided; for another run's `end` a new one.

        A batch of another run must read all of its messages: later batches begin behind it, also
        with failOnDataLoss=false.
        """
        if self._planned is not None and self._planned[0] == end:
            return self._planned[1]
        return self._look(needed, _brokers(needed))

    def _warn(self, warnings: Sequence[str]) -> None:
        for warning in warnings:
            if warning not in self._warned:
                logger.warning("stream goes on without messages reason=%r", warning)
        self._warned = frozenset(warnings)


def _brokers(queues: Iterable[MessageQueue]) -> set[str]:
    return {queue.broker_name for queue in queues}


def _beginnings(
    begin: Offsets, end: Offsets, snapshot: ClusterSnapshot, anew: Collection[MessageQueue]
) -> dict[MessageQueue, QueueOffset]:
    """Return the begin of each queue that the start of the batch does not have."""
    fresh = {queue: snapshot.ranges[queue].begin for queue in end.keys() - begin.keys()}
    return {queue: first for queue, first in fresh.items() if end[queue] > first or queue in anew}


def _parked(
    known: Offsets, end: Offsets, snapshot: ClusterSnapshot
) -> dict[MessageQueue, QueueOffset]:
    """Return the queues that `end` does not have and that may return with their messages."""
    pairs = {(queue.topic, queue.broker_name) for queue in snapshot.ranges}
    return {
        queue: offset
        for queue, offset in known.items()
        if queue not in end
        and ((queue.topic, queue.broker_name) in pairs or queue.broker_name not in snapshot.brokers)
    }


def _stores(
    queues: Iterable[MessageQueue], start: OffsetJson, snapshot: ClusterSnapshot
) -> dict[str, str]:
    """Return the id of each queue's store, also for brokers that are away now."""
    stores = {**stores_of(start), **snapshot.stores}
    return {name: stores[name] for name in _brokers(queues) & stores.keys()}


def _created(
    queues: Iterable[MessageQueue], start: OffsetJson, snapshot: ClusterSnapshot
) -> dict[tuple[str, str], int]:
    """Return the creation of the topics of `queues`.

    The master of a slave may have an older version without creations. So the number of a slave
    counts only if it is higher than the number of a master before.
    """
    known = created_of(start)
    created = known | {
        pair: at
        for pair, at in snapshot.created.items()
        if pair[1] not in snapshot.answered_by_slave or at > known.get(pair, at)
    }
    pairs = {(queue.topic, queue.broker_name) for queue in queues}
    return {pair: created[pair] for pair in pairs & created.keys()}


def _tighter(one: int | None, other: int | None) -> int | None:
    present = [limit for limit in (one, other) if limit is not None]
    return min(present, default=None)
