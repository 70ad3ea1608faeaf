"""The delay levels: each has a queue, in which messages wait in the order of their due times.

Progress moves when delivered messages count as stored, and is saved once it survives a loss of
power. Deliveries that were not saved before a crash are recognised by their copies in the log
(`delivery_recovery`): a failure skips no message, and repeats none that the log holds.

Source: RocketMQ `ScheduleMessageService`.
"""

import logging
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.scheduled.delivery import Deliverer
from ternmq_broker.scheduled.delivery_recovery import SEARCH_BYTES_MAX, Copies, copies_of
from ternmq_broker.scheduled.wakeup_timer import WakeupTimer
from ternmq_model.arrays import Ints
from ternmq_model.delay import DELAY_LEVEL_MAX, level_delay_ms
from ternmq_model.names import SCHEDULE_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.format import Record, decode_record
from ternmq_runtime.service import Job
from ternmq_store.dispatch.dispatch_request import code_of
from ternmq_store.dispatch.log_dispatcher import Arrival
from ternmq_store.log.clock_moves import all_moved_ms
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadResult

logger = logging.getLogger(__name__)

_BATCH: Final = ReadLimits(256, 1 << 20)
_RETRY_S: Final = 0.1
_UNSAVED_PAUSE_S: Final = 1.0


class LevelDueTimes:
    """Due times of one level, independent of steps of the clock. Owned by `DelayLevels`.

    A queue holds the due time of each message: its store time and the level's delay. Steps of the
    clock since then are added: a delay is a length of time. No message that was stored before the
    broker's start waits longer than the delay from the start on, whichever clock stored it.

    RocketMQ delivers a message at once if it seems to be due later than that, so messages after a
    clock that was set back are not delayed at all.

    Source: RocketMQ `ScheduleMessageService.correctDeliverTimestamp`.

    Args:
        level: Delay level, 1 to 18.
        end: End of the level's queue at the broker's start.
        now_ms: Wall clock at the broker's start.
    """

    def __init__(self, level: int, end: int, *, now_ms: int) -> None:
        self._delay_ms = level_delay_ms(level)
        self._found_end = end
        self._found_due_ms = now_ms + self._delay_ms

    def stepped(self, by_ms: int) -> None:
        """Record a step of the clock by `by_ms`: ahead, or back."""
        self._found_due_ms += by_ms

    def dues_ms(self, offset: int, codes: Ints, moved_ms: Ints) -> Ints:
        """Return the due times of messages.

        Args:
            offset: Queue offset of the first message.
            codes: Due codes, from the queue or from the records.
            moved_ms: Steps of the clock since each message was stored.
        """
        dues = codes + moved_ms
        if self._found_end > offset:
            found = dues[: self._found_end - offset]
            np.minimum(found, self._found_due_ms, out=found)
        return dues

    def count_likely(self, dues_ms: Ints, *, now_ms: int) -> int:
        """Return the number of messages, from the first on, that may be due by their units.

        A damaged unit may hold any time, so the records decide. No message waits longer than the
        delay, or than a message behind it.
        """
        rows = np.flatnonzero((dues_ms <= now_ms) | (dues_ms > now_ms + self._delay_ms))
        return int(rows[-1]) + 1 if len(rows) else 0


class LevelProgress(NamedTuple):
    """Progress of a level, valid once the log is on the disk up to `end`."""

    level: int
    offset: QueueOffset
    begin: PhysicalOffset
    """End of the log before the delivery."""

    end: PhysicalOffset


class DelayLevels:
    """The 18 delay levels. Owned by the broker's loop.

    Attributes:
        job: Delivery job; begins when the broker listens and ends before the store.
    """

    def __init__(self, env: BrokerEnvironment, deliverer: Deliverer) -> None:
        self._reader = env.reader
        self._store = env.store
        self._deliverer = deliverer
        self._offsets = env.tables.delays
        self._clock = env.clock
        self.job: Final = Job(name="deliver-delayed", interval_s=math.inf, step=self.step)
        self._timer = WakeupTimer(self.job.wake, "delayed", env.timers)
        now_ms = env.clock.wall_ms()
        self._waits = {
            level: LevelDueTimes(level, self._end(level), now_ms=now_ms)
            for level in range(1, DELAY_LEVEL_MAX + 1)
        }
        self._next: dict[int, QueueOffset] = {}
        self._filled = set(self._waits)
        """Levels that may have messages to deliver."""
        self._unsaved: deque[LevelProgress] = deque()
        self._begun: dict[int, PhysicalOffset] = {}
        """End of the log before the first attempt, by level with a failing delivery."""
        self._copies: dict[int, Copies] = {}
        """Messages that an earlier use delivered, by level, until saved progress covers them."""

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake the job for new delayed messages."""
        for arrival in arrivals:
            if arrival.topic == SCHEDULE_TOPIC and arrival.queue_id + 1 in self._waits:
                self._filled.add(arrival.queue_id + 1)
                self._wake_at(int(arrival.tag_codes[0]))

    def stepped(self, by_ms: int) -> None:
        """Record a step of the clock by `by_ms`: ahead, or back."""
        for wait in self._waits.values():
            wait.stepped(by_ms)

    def offset(self, level: int) -> QueueOffset:
        """Return the queue offset of the next message of `level` to deliver."""
        return self._next.get(level, self._offsets.get(level))

    def waiting(self, level: int) -> int:
        """Return the number of waiting messages of `level`."""
        return max(self._end(level) - self.offset(level), 0)

    def _end(self, level: int) -> QueueOffset:
        _, end = self._store.queue_range(SCHEDULE_TOPIC, level - 1)
        return end

    def needed_from(self) -> PhysicalOffset | None:
        """Return the log offset of the oldest undelivered message; None without one."""
        offsets = map(self._level_needed_from, self._waits)
        return min((offset for offset in offsets if offset is not None), default=None)

    def _level_needed_from(self, level: int) -> PhysicalOffset | None:
        first, end = self._store.queue_range(SCHEDULE_TOPIC, level - 1)
        offset = QueueOffset(max(self.offset(level), first))
        if offset >= end:
            return None
        return self._store.searches.place_of(SCHEDULE_TOPIC, level - 1, offset)

    def search_from(self) -> PhysicalOffset | None:
        """Return the log offset from which deliveries without saved progress may lie.

        To be called at the start. None = there are none.
        """
        saved = self._offsets.search_from
        if saved is None or not any(map(self.waiting, self._waits)):
            return None
        # A copy lies behind its source.
        return max(saved, self.needed_from() or saved)

    def begin(self, found: Mapping[int, PhysicalOffset]) -> None:
        """Skip messages that an earlier use of the store has delivered.

        Args:
            found: Offsets of the copies in the log, by the offset of their source.
        """
        for level in self._waits:
            offset = self.offset(level)
            copies = copies_of(self._store, SCHEDULE_TOPIC, level - 1, offset, found)
            if len(copies.offsets):
                self._copies[level] = copies
        saved = self._offsets.search_from
        if saved is None or saved > self._store.max_physical:  # a loss of power took the log's end
            self._offsets.put_search_start(self._uncovered_from())

    def _uncovered_from(self) -> PhysicalOffset:
        """Return the log offset before which saved progress covers all deliveries."""
        begun = (*self._begun.values(), *(each.begin for each in self._unsaved), *self._uncovered())
        return PhysicalOffset(min(begun, default=self._store.max_physical))

    def _uncovered(self) -> Iterator[int]:
        """Drop copies that saved progress covers; yield the first other copy of each level."""
        for level, copies in list(self._copies.items()):
            physical = copies.physical_offsets[copies.offsets >= self._offsets.get(level)]
            if len(physical):
                yield int(physical.min())
            else:
                del self._copies[level]

    def settle(self) -> None:
        """Copy progress that survives a loss of power into the table."""
        flushed, now_ms = self._store.flushed_offset, self._clock.wall_ms()
        is_due = False
        while self._unsaved and self._unsaved[0].end <= flushed:
            done = self._unsaved.popleft()
            self._offsets.put(done.level, done.offset, now_ms=now_ms)
            is_due = True
        begin, saved = self._uncovered_from(), self._offsets.search_from
        if is_due or saved is None or begin - saved >= SEARCH_BYTES_MAX:
            self._offsets.put_search_start(begin)

    @property
    def unsettled_end(self) -> PhysicalOffset:
        """Offset up to which the log must be on the disk before all progress is settled."""
        return self._unsaved[-1].end if self._unsaved else PhysicalOffset(0)

    def stop(self) -> None:
        """Cancel the wake-up timer."""
        self._timer.clear()

    async def step(self) -> bool:
        """Deliver one batch of each level that has due messages: the step of a job."""
        return await self._timer.attempt(self._deliver_all)

    async def _deliver_all(self) -> bool:
        has_more = False
        for level in sorted(self._filled):
            has_more |= await self._deliver(level)
        self.settle()
        if self._unsaved:
            self._timer.poll(_UNSAVED_PAUSE_S)
        return has_more

    async def _deliver(self, level: int) -> bool:
        """Deliver at most a batch of a level's due messages; return whether more are due.

        Raises:
            TernError: The delivery failed; progress has not changed.
        """
        first, end = self._store.queue_range(SCHEDULE_TOPIC, level - 1)
        offset = self._corrected(level, first)
        if offset >= end:
            self._filled.discard(level)
            return False
        searches, count = self._store.searches, _BATCH.messages_max
        codes = searches.codes_at(SCHEDULE_TOPIC, level - 1, offset, count)
        physical = searches.places_at(SCHEDULE_TOPIC, level - 1, offset, count)
        dues_ms = self._dues_ms(level, offset, codes, physical)
        count = self._waits[level].count_likely(dues_ms, now_ms=self._clock.wall_ms())
        if count < len(dues_ms):
            self._wake_at(int(dues_ms[count:].min()))
        if not count:
            return False
        result = await self._reader.read(
            ReadRequest(
                topic=SCHEDULE_TOPIC,
                queue_id=level - 1,
                offset=offset,
                hot=_BATCH.within(count, _BATCH.bytes_max),
                cold=_BATCH.within(count, _BATCH.bytes_max),
            )
        )
        records = records_of(result)
        if not records and result.next_offset <= offset:
            self._timer.set(_RETRY_S)
            return False
        has_more = result.next_offset - offset < count or (
            count == len(dues_ms) and offset + count < end
        )
        next_offset, skipped = result.next_offset, result.skipped
        dues_ms = self._dues_ms(level, offset, *_codes_of(records, offset, next_offset))
        if (waits := dues_ms > self._clock.wall_ms()).any():  # units were wrong
            first_row = int(waits.argmax())
            self._wake_at(int(dues_ms[first_row]))
            has_more, next_offset = False, QueueOffset(offset + first_row)
            records = [each for each in records if each.header.queue_offset < next_offset]
            skipped = min(skipped, first_row - len(records))
        if skipped:
            logger.error(
                "delayed messages damaged, not delivered delay_level=%d count=%d", level, skipped
            )
        if next_offset > offset:
            await self._store_in_place(level, offset, next_offset, records)
        return has_more

    def _dues_ms(self, level: int, offset: QueueOffset, codes: Ints, physical: Ints) -> Ints:
        """Return the due times of messages from `offset` on."""
        moved_ms = all_moved_ms(self._store.session.clock.moves, physical)
        return self._waits[level].dues_ms(offset, codes, moved_ms)

    async def _store_in_place(
        self,
        level: int,
        offset: QueueOffset,
        next_offset: QueueOffset,
        records: Sequence[Record],
    ) -> None:
        if level in self._copies:
            known = self._copies[level].between(offset, next_offset)
            records = [each for each in records if each.header.queue_offset not in known]
        begin = self._begun.setdefault(level, self._store.max_physical)
        done = await self._deliverer.deliver(records)
        del self._begun[level]
        self._next[level] = next_offset
        end = max(done.end, self.unsettled_end)
        self._unsaved.append(LevelProgress(level, next_offset, begin, PhysicalOffset(end)))

    def _corrected(self, level: int, first: QueueOffset) -> QueueOffset:
        """Return the progress of a level, corrected to lie within its queue."""
        offset = self.offset(level)
        end = self._store.next_offset(SCHEDULE_TOPIC, level - 1)
        correct = QueueOffset(max(min(offset, end), first))
        if correct != offset:
            logger.warning(
                "delay level corrected delay_level=%d before=%d after=%d first=%d end=%d",
                level,
                offset,
                correct,
                first,
                end,
            )
            self._next[level] = correct
            begin = self._store.max_physical
            self._unsaved.append(LevelProgress(level, correct, begin, self.unsettled_end))
        return correct

    def _wake_at(self, due_ms: int) -> None:
        self._timer.sleep((due_ms - self._clock.wall_ms()) / 1000)


def _codes_of(
    records: Sequence[Record], offset: QueueOffset, end: QueueOffset
) -> tuple[Ints, Ints]:
    """Return due codes and log offsets of messages, from their records; 0 without a record."""
    codes, physical = np.zeros((2, end - offset), dtype=np.int64)
    for record in records:
        header = record.header
        row = header.queue_offset - offset
        codes[row] = code_of(SCHEDULE_TOPIC, record.properties, header.stored_at_ms)
        physical[row] = header.physical_offset
    return codes, physical


def records_of(result: ReadResult) -> Sequence[Record]:
    """Return copies of the records of a read; to be called before the caller awaits."""
    data = result.records
    found: list[Record] = []
    at = 0
    for size in result.record_sizes.tolist():
        record = decode_record(data, at, check_crc=False)
        if record is not None:
            found.append(record)
        at += size
    return found
