"""Counters of a store: messages put and got, times of puts, and lags of readers.

Batches and reads are counted, never single messages, so that counting costs next to nothing.

Source: RocketMQ `StoreStatsService`, `BrokerStatsManager`.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from ternmq_model.record.batch import Records
from ternmq_store.queues.read_request import ReadRequest, ReadResult

PUT_TIME_BORDERS_MS: Final = (
    1,
    10,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    3_000,
    4_000,
    5_000,
    10_000,
)
"""Borders of the ranges in which put times are counted, ms; the first range begins at 0."""

RATE_SPANS_S: Final = (10, 60, 600)
"""Spans over which rates are computed, s."""

_GROUPS_MAX: Final = 100_000
_SECOND_MS: Final = 1_000


class PutCount(NamedTuple):
    """Count of the stored messages of one topic, and length of their records."""

    messages: int
    bytes: int


class ReaderLag(NamedTuple):
    """Distance of a reader from the log's end at its last read."""

    bytes: int
    """Distance from the last record read to the end of the log, bytes."""

    messages: int
    """Count of messages in the queue behind the last one read."""

    read_at_ms: int
    """Time of the last read by the wall clock, ms."""


class StoreRate(NamedTuple):
    """Counts per second over the last `span_s` seconds, or since the first sample."""

    span_s: int
    put_messages: float
    gets_found: float
    gets_missed: float
    got_messages: float


class PutTimer(Protocol):
    """Sum of the times of puts."""

    ms: int
    """Time of all puts, ms."""


class StatisticsObserver(Protocol):
    """Observer that counts puts and reads by its own rules. Called on the store's thread."""

    def put(self, batch: Records) -> Sequence[PutTimer]:
        """Count a stored batch; return the timers to which its time is added."""
        ...

    def got(
        self,
        request: ReadRequest,
        result: ReadResult,
        took_ms: int,
        now_ms: int,
        *,
        from_disk: bool,
    ) -> None:
        """Count a read that ended at `now_ms` of the wall clock.

        Slices of the map in `result` may be inspected, and not retained.
        """
        ...


class _Sample(NamedTuple):
    at_ms: int
    put_messages: int
    gets_found: int
    gets_missed: int
    got_messages: int


class _PendingPut(NamedTuple):
    end: int
    begun_at_ms: int
    timed: Sequence[PutTimer]


class StoreStatistics:
    """Counters of one store since its opening.

    Owned by `MessageStore`, on the store's thread.

    Attributes:
        puts: Batches that were stored.
        put_messages: Messages that were stored.
        put_bytes: Length of the records of stored messages.
        put_times: Counts of puts by duration, in the ranges of `PUT_TIME_BORDERS_MS`. A put ends
            when its messages count as stored: with a synchronous flush, behind the sync.
        put_longest_ms: Duration of the longest put.
        gets_found: Reads that returned messages.
        gets_missed: Reads that returned none.
        got_messages: Messages that reads returned.
        gets_from_disk: Reads that needed the disk.
        get_longest_ms: Duration of the longest read.
        observer: Further observer of puts and reads, or None.
    """

    def __init__(self) -> None:
        self.puts = 0
        self.put_messages = 0
        self.put_bytes = 0
        self.put_times = [0] * (len(PUT_TIME_BORDERS_MS) + 1)
        self.put_longest_ms = 0
        self.gets_found = 0
        self.gets_missed = 0
        self.got_messages = 0
        self.gets_from_disk = 0
        self.get_longest_ms = 0
        self.observer: StatisticsObserver | None = None
        self._begun = 0
        self._topics: dict[str, PutCount] = {}
        self._waiting: deque[_PendingPut] = deque()
        self._behind: dict[tuple[str, str, int], ReaderLag] = {}
        self._samples: deque[_Sample] = deque(maxlen=RATE_SPANS_S[-1] + 1)

    @property
    def puts_failed(self) -> int:
        """Batches that were not stored, for any reason."""
        return self._begun - self.puts

    @property
    def put_average_bytes(self) -> float:
        """Average length of a record; 0 = there is none."""
        return self.put_bytes / self.put_messages if self.put_messages else 0.0

    @property
    def topics(self) -> Mapping[str, PutCount]:
        """Counts of stored messages by topic."""
        return self._topics

    @property
    def behind(self) -> Mapping[tuple[str, str, int], ReaderLag]:
        """Lags by group, topic and queue id."""
        return self._behind

    def put_begun(self) -> None:
        """Count a batch before it is stored; it counts as failed unless `put` follows."""
        self._begun += 1

    def put(self, batch: Records, *, end: int, begun_at_ms: int) -> None:
        """Count a stored batch that ends at log offset `end`; its time ends at `confirmed`.

        The put began at `begun_at_ms` of the monotonic clock.
        """
        messages, length = len(batch), len(batch.data)
        self.puts += 1
        self.put_messages += messages
        self.put_bytes += length
        if len(batch.queues) == 1 or len({queue.topic for queue in batch.queues}) == 1:
            self._add(batch.queues[0].topic, messages, length)
        else:
            for queue in batch.queues:
                self._add(queue.topic, len(queue.rows), int(batch.sizes[queue.rows].sum()))
        timed = () if self.observer is None else self.observer.put(batch)
        self._waiting.append(_PendingPut(end, begun_at_ms, timed))

    def _add(self, topic: str, messages: int, length: int) -> None:
        before = self._topics.get(topic)
        if before is not None:
            messages, length = before.messages + messages, before.bytes + length
        self._topics[topic] = PutCount(messages, length)

    def confirmed(self, offset: int, *, now_ms: int) -> None:
        """Record at `now_ms`, monotonic, that batches up to log offset `offset` count as stored."""
        waiting = self._waiting
        while waiting and waiting[0].end <= offset:
            _, begun_at_ms, timed = waiting.popleft()
            took_ms = now_ms - begun_at_ms
            for each in timed:
                each.ms += took_ms
            self.put_times[bisect_right(PUT_TIME_BORDERS_MS, took_ms)] += 1
            self.put_longest_ms = max(self.put_longest_ms, took_ms)

    def got(self, messages: int, *, took_ms: int, from_disk: bool) -> None:
        """Count a read that returned `messages` messages."""
        if messages:
            self.gets_found += 1
            self.got_messages += messages
        else:
            self.gets_missed += 1
        self.gets_from_disk += from_disk
        self.get_longest_ms = max(self.get_longest_ms, took_ms)

    def fell_behind(self, group: str, topic: str, queue_id: int, behind: ReaderLag) -> None:
        """Record the lag of a group in one queue."""
        key = (group, topic, queue_id)
        if key not in self._behind and len(self._behind) >= _GROUPS_MAX:
            del self._behind[next(iter(self._behind))]
        self._behind[key] = behind

    def forget_topics(self, topics: Collection[str]) -> None:
        """Remove the counts of deleted topics."""
        for topic in topics:
            self._topics.pop(topic, None)
        for key in [key for key in self._behind if key[1] in topics]:
            del self._behind[key]

    def step(self, now_ms: int) -> None:
        """Add a sample for the rates at `now_ms`, monotonic; to be called every second."""
        self._samples.append(
            _Sample(now_ms, self.put_messages, self.gets_found, self.gets_missed, self.got_messages)
        )

    def rates(self) -> Sequence[StoreRate]:
        """Return the rates over each of `RATE_SPANS_S` at the last sample."""
        return tuple(self._rate(span_s) for span_s in RATE_SPANS_S)

    def _rate(self, span_s: int) -> StoreRate:
        if len(self._samples) < 2:
            return StoreRate(span_s, 0.0, 0.0, 0.0, 0.0)
        last = self._samples[-1]
        first = self._samples[max(len(self._samples) - 1 - span_s, 0)]
        seconds = max(last.at_ms - first.at_ms, 1) / _SECOND_MS
        return StoreRate(
            span_s,
            (last.put_messages - first.put_messages) / seconds,
            (last.gets_found - first.gets_found) / seconds,
            (last.gets_missed - first.gets_missed) / seconds,
            (last.got_messages - first.got_messages) / seconds,
        )
