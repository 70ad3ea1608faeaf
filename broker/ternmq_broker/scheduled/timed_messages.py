"""Timed messages, which wait in the wheel timer's queue until they are due.

Each is a number in memory, read from the queue at every start, from the first undelivered message
on. A message leaves the memory when it counts as stored in its own queue, and the checkpoint is
saved once that survives a loss of power. Messages that were delivered or rolled before a crash, but
not saved, have copies in the log (`delivery_recovery`): a failure skips no message, and repeats
none that the log holds.

Source: RocketMQ `TimerMessageStore`.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.scheduled.cancellation import Cancellations
from ternmq_broker.scheduled.delivery import Deliverer
from ternmq_broker.scheduled.delivery_delay import DeliveryDelay
from ternmq_broker.scheduled.delivery_recovery import NO_COPIES, SEARCH_BYTES_MAX, Copies, copies_of
from ternmq_broker.scheduled.rolling import Rescheduler, Roller, RollResult, read_many
from ternmq_broker.scheduled.timer_handover import TimerHandover
from ternmq_broker.scheduled.timer_wheel import (
    NEVER_MS,
    DueMessages,
    TimerWheel,
    asked_for_ms,
    codes_of_records,
    is_time,
    not_delivered,
)
from ternmq_broker.scheduled.wakeup_timer import WakeupTimer
from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_model.delay import TICK_MS
from ternmq_model.errors import StoreError
from ternmq_model.names import WHEEL_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_runtime.service import Job
from ternmq_store.dispatch.log_dispatcher import Arrival
from ternmq_store.log.clock_moves import TimerMove

logger = logging.getLogger(__name__)

_ENQUEUE_UNITS: Final = 65_536
_BATCH_MESSAGES: Final = 256
_SAVE_MS: Final = 1000


class CheckpointCandidate(NamedTuple):
    """Checkpoint that may be saved once the log is on the disk up to `end`."""

    checkpoint: TimerCheckpoint
    end: PhysicalOffset


class TimedMessages:
    """The timed messages of one broker. Owned by the broker's loop.

    Attributes:
        job: Delivery job; begins when the broker listens and ends before the store.
    """

    def __init__(self, env: BrokerEnvironment, deliverer: Deliverer) -> None:
        self._reader = env.reader
        self._store = env.store
        self._deliverer = deliverer
        self._roller = Roller(env.reader, deliverer.writer)
        self._rescheduler = Rescheduler(self._roller, env.clock)
        self._saved = saved = env.tables.timer
        self._save = env.tables.save_timer
        self._clock = env.clock
        self._handover = TimerHandover(env.store, env.tables.timer_files, env.clock)
        self._pending_max = env.live.broker.timer_pending_max
        self.job: Final = Job(name="deliver-timed", interval_s=math.inf, step=self.step)
        self._timer = WakeupTimer(self.job.wake, "timed", env.timers)
        self._wheel = TimerWheel()
        self._next = QueueOffset(-1)
        """Next message of the queue to add to the wheel; -1 = not begun."""
        self._known = saved
        self._read_ms = saved.read_ms
        self._is_known = True
        self._is_dirty = False
        self._candidate: CheckpointCandidate | None = None
        self._is_refused = False
        self._batch: DueMessages | None = None
        self._begun = PhysicalOffset(0)
        """End of the log when the batch being delivered, or a batch to roll, was taken."""
        self._copies = NO_COPIES
        """Copies in the log, delivered or rolled, that the saved checkpoint may not cover."""
        self._cancellations = Cancellations()
        self._end = PhysicalOffset(0)
        """Offset up to which the log must be on the disk for deliveries to survive."""
        self._saved_at_ms = env.clock.monotonic_ms()
        self.delivery_delay = DeliveryDelay()
        self.cancelled = 0
        self.rolled = 0

    @property
    def waiting(self) -> int:
        """Number of waiting messages."""
        in_batch = 0 if self._batch is None else len(self._batch)
        return len(self._wheel) + in_batch + self._rescheduler.waiting

    @property
    def is_full(self) -> bool:
        """True when no further message may wait."""
        return self.waiting >= self._pending_max

    @property
    def behind(self) -> int:
        """Number of messages in the queue that are not in the wheel yet."""
        _, end = self._store.queue_range(WHEEL_TOPIC, 0)
        return max(end - max(self._next, 0), 0)

    @property
    def next_offset(self) -> QueueOffset:
        """Next message of the queue to add to the wheel; -1 = not begun."""
        return self._next

    @property
    def first_ms(self) -> int:
        """Due time of the first message, 6.4 s too early at most; `NEVER_MS` without one."""
        due_ms = NEVER_MS if self._batch is None else int(self._batch.due_ms.min())
        return min(due_ms, self._wheel.first_ms)

    def due_counts(self, within_ms: Sequence[int]) -> list[int]:
        """Return how many waiting messages are due within each time from now on."""
        taken = self.waiting - len(self._wheel)
        now_ms = self._clock.wall_ms()
        return [taken + count for count in self._wheel.due_counts(now_ms, within_ms)]

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake the job for new timed messages."""
        if any(arrival.topic == WHEEL_TOPIC for arrival in arrivals):
            self.job.wake()

    def stepped(self, by_ms: int | None) -> None:
        """Record a step of the clock by `by_ms`; None = the clock was set back before the start.

        All waiting messages are rescheduled.
        """
        session = self._store.session
        move = TimerMove(self._store.next_offset(WHEEL_TOPIC, 0), by_ms)
        if by_ms is not None or move not in session.clock.timer_moves:
            session.timer_follows(move)
            self._rescheduler.note(move)
        self.job.wake()

    def resume_moves(self) -> None:
        """Resume rescheduling after earlier steps of the clock; to be called once, at the start."""
        session = self._store.session
        session.timer_followed(self._saved.begins_at)
        for move in session.clock.timer_moves:
            self._rescheduler.note(move)

    async def step(self) -> bool:
        """Add new messages to the wheel, then deliver a batch of due ones: the step of a job."""
        return await self._timer.attempt(self._add_and_deliver)

    async def _add_and_deliver(self) -> bool:
        await self._take_over()
        # All new messages first: a message may cancel another one.
        has_more = await self._add_or_move()
        if not has_more and self._rescheduler.end is None:
            has_more = await self._deliver() or await self._roll()
        await self._save_progress()
        if not has_more and self.waiting:
            ahead_ms = self._wheel.first_ms - self._clock.wall_ms()
            # A rescheduled message that is stored cannot be read yet.
            is_rescheduling = self._rescheduler.end is not None
            self._timer.sleep(math.inf if is_rescheduling else ahead_ms / 1000)
        return has_more

    async def settle(self, flush_to: Callable[[PhysicalOffset], Awaitable[None]]) -> None:
        """Save the last checkpoint, and a timer log for RocketMQ; the job has ended.

        Args:
            flush_to: Brings the log to the disk up to an offset, if it can.

        Raises:
            StoreError: The disk refused; the checkpoint before holds.
        """
        self._timer.clear()
        # The timer log for RocketMQ refers to records.
        await flush_to(self._store.max_physical)
        if self._is_dirty or (self._next >= 0 and self.waiting):
            self._candidate = self._progress()
        is_safe = self._store.max_physical <= self._store.flushed_offset
        if self._candidate is not None and self._rescheduler.end is None and is_safe:
            await self._handover.leave(self._waits(), self._candidate.checkpoint)
        refused = await self._save_progress()
        self._timer.clear()
        if refused is not None:
            raise refused

    async def _add_or_move(self) -> bool:
        """Add or reschedule a bounded number of messages; return whether more wait for that."""
        return await self._move() or await self._enqueue() or await self._move()

    async def _enqueue(self) -> bool:
        """Add a bounded number of new messages to the wheel; return whether more wait for that.

        Raises:
            RefusedError: The disk cannot be read; no message was added.
        """
        first, end = self._store.queue_range(WHEEL_TOPIC, 0)
        begin = max(self._next, first)
        if self._rescheduler.end is not None:
            end = min(end, self._rescheduler.end)  # later messages are not rescheduled
        if begin >= end:
            return False
        count = min(_ENQUEUE_UNITS, end - begin)
        codes = self._store.searches.codes_at(WHEEL_TOPIC, 0, QueueOffset(begin), count)
        offsets = np.arange(begin, begin + len(codes), dtype=np.int64)
        strange = np.flatnonzero(~is_time(codes))
        if len(strange):
            rows = strange[:_BATCH_MESSAGES]
            records = await read_many(self._reader, offsets[rows].tolist())
            rows = rows[: len(records)]
            codes[rows] = codes_of_records(records)
            count = len(codes) if len(records) == len(strange) else int(strange[len(records)])
            codes, offsets = codes[:count], offsets[:count]
        chosen = not_delivered(offsets, codes, self._known)
        chosen &= ~np.isin(offsets, self._copies.offsets)
        self._wheel.add(offsets[chosen], codes[chosen])
        self._next = QueueOffset(begin + len(codes))
        return self._next < end

    async def _move(self) -> bool:
        """Reschedule a bounded number of messages after a step of the clock; return if it did.

        The checkpoint from before the step holds until all messages are rescheduled, in the order
        of the queue.

        Raises:
            TernError: Rescheduling failed; the messages are tried again.
        """
        if self._rescheduler.end is None or self._next < self._rescheduler.end:
            return False
        if not self._rescheduler.is_moving:
            waits = self._waits()
            if self._batch is None:
                self._begun = self._store.max_physical
            self._wheel, self._batch, self._cancellations = TimerWheel(), None, Cancellations()
            self._rescheduler.begin(waits)
        self._note_rolled(await self._rescheduler.step(), self._begun)
        self._begun = self._store.max_physical
        if not self._rescheduler.is_moving:
            self._read_ms = 0  # no message that waits now has been delivered
        return True

    def _begin(self) -> None:
        """Resume at the checkpoint of the previous use, within the end of the queue."""
        last, known = self._store.next_offset(WHEEL_TOPIC, 0), self._known
        self._known = known._replace(
            first_offset=min(known.first_offset, last), next_offset=min(known.next_offset, last)
        )
        self._next = QueueOffset(self._known.begins_at)
        self._is_dirty |= len(self._copies.offsets) > 0

    def _waits(self) -> DueMessages:
        """Return the waiting messages that are not being rescheduled, by queue offset."""
        found = [self._wheel.waiting(), self._cancellations.waiting()]
        if self._batch is not None:
            found.append(self._batch)
        waits = DueMessages.joined(found)
        # A message of the batch that cancels is known twice.
        _, rows = np.unique(waits.offsets, return_index=True)
        return waits.rows(rows)

    async def _take_over(self) -> None:
        """Retire RocketMQ's timer files before a message is stored or delivered.

        Raises:
            StoreError: The checkpoint was not saved; it is tried again.
        """
        if self._next < 0:
            self._begin()
        if self._saved.timer_log_position:
            saved = self._known.adopted()
            saved = saved._replace(look_behind=self._look_behind(saved))
            await self._save(saved)
            self._saved, self._is_dirty = saved, True
        again_s = await self._handover.take_over()
        if again_s is not None:
            self._timer.set(again_s)

    async def _deliver(self) -> bool:
        """Deliver at most a batch of due messages; return whether more may be due.

        Raises:
            TernError: The delivery failed; the batch waits for the next attempt.
        """
        now_ms = self._clock.wall_ms()
        if self._batch is None:
            due = self._wheel.take(now_ms, _BATCH_MESSAGES)
            if not len(due):
                self._advance_read_time(now_ms)
                return False
            self._batch, self._begun = due, self._store.max_physical
        due = self._batch
        records = await read_many(self._reader, due.offsets.tolist())
        count = len(records)
        damaged = records.count(None)
        if damaged:
            logger.error("timed messages damaged or gone, not delivered count=%d", damaged)
        remaining = self._cancellations.without_cancelled(records, due)
        done = await self._deliverer.deliver(remaining)
        self._deliverer.dropped += damaged
        self.cancelled += count - damaged - len(remaining) - int(due.cancels[:count].sum())
        if done.end:
            asked_ms = np.array([asked_for_ms(record) for record in remaining], dtype=np.int64)
            self.delivery_delay.add(done.stored_at_ms - asked_ms)
        self._end = max(self._end, done.end)
        self._batch = due.rows(slice(count, None)) if count < len(due) else None
        self._is_dirty = True
        self._advance_read_time(now_ms)
        return True

    async def _roll(self) -> bool:
        """Roll messages out of a log file that they hold; return whether there were any.

        Raises:
            TernError: Rolling failed; the messages still wait in the file.
        """
        begin = self._store.max_physical
        done = await self._roller.roll(self._wheel, self._roll_end())
        if done is None:
            return False
        self._note_rolled(done, begin)
        self._advance_read_time(self._clock.wall_ms())
        return True

    def _roll_end(self) -> PhysicalOffset:
        """Return the log offset before which no message is to wait."""
        end, copied = self._store.cleaner.held_end, self._uncovered(self._saved).offsets
        if not len(copied) or self._store.max_physical - self._saved.look_behind < SEARCH_BYTES_MAX:
            return end
        # The checkpoint cannot cover these while messages before them wait.
        last = QueueOffset(int(copied.max()))
        physical = self._store.searches.place_of(WHEEL_TOPIC, 0, last)
        return end if physical is None else PhysicalOffset(max(end, physical + 1))

    def _note_rolled(self, done: RollResult, begin: PhysicalOffset) -> None:
        if (due := done.originals) is not None:
            # One row for all: a checkpoint that covers the last offset and time covers all.
            last = Copies(*np.array([[due.offsets.max()], [due.due_ms.max()], [begin]]))
            self._copies = Copies(*map(np.concatenate, zip(self._copies, last, strict=True)))
        self.rolled += done.messages
        self._end = max(self._end, done.end)
        self._is_dirty = True

    def search_from(self) -> PhysicalOffset | None:
        """Return the log offset from which deliveries without saved progress may lie.

        To be called at the start. None = there are none.
        """
        _, end = self._store.queue_range(WHEEL_TOPIC, 0)
        saved = self._saved.search_from
        if saved is None or self._saved.begins_at >= end:
            return None
        # A copy lies behind its source.
        return max(saved, self.needed_from() or saved)

    async def begin(self, found: Mapping[int, PhysicalOffset]) -> None:
        """Skip messages with copies in the log; save where a search after a crash begins.

        Args:
            found: Offsets of the copies in the log, by the offset of their source.

        Raises:
            StoreError: The disk refused; until a save succeeds, a crash may repeat deliveries.
        """
        offsets, codes, physical = copies_of(
            self._store, WHEEL_TOPIC, 0, self._saved.begins_at, found
        )
        # Units by RocketMQ have no due codes, so only `first_offset` covers their messages.
        self._copies = Copies(offsets, np.where(is_time(codes), codes, NEVER_MS), physical)
        search_from = self._saved.search_from
        # A loss of power takes the log's end.
        if search_from is None or search_from > self._store.max_physical:
            saved = self._saved._replace(look_behind=self._look_behind(self._saved))
            await self._save(saved)
            self._saved = saved

    def _look_behind(self, checkpoint: TimerCheckpoint) -> int:
        """Return 1 more than the offset before which the log has no copy outside a checkpoint."""
        is_batch = self._batch is not None or self._rescheduler.is_moving
        begin = self._begun if is_batch else self._store.max_physical
        return 1 + int(self._uncovered(checkpoint).physical_offsets.min(initial=begin))

    def _uncovered(self, checkpoint: TimerCheckpoint) -> Copies:
        """Return the copies that a checkpoint does not cover."""
        offsets, codes, _ = self._copies
        is_waiting = not_delivered(offsets, codes, checkpoint)
        return self._copies.rows(is_waiting & (offsets >= checkpoint.begins_at))

    def needed_from(self) -> PhysicalOffset | None:
        """Return the log offset of the oldest undelivered message; None without one."""
        first, end = self._store.queue_range(WHEEL_TOPIC, 0)
        offset = QueueOffset(max(self._first_needed(), first))
        return None if offset >= end else self._store.searches.place_of(WHEEL_TOPIC, 0, offset)

    def _first_needed(self) -> int:
        """Return the first message of the queue that a restart would have to read."""
        if self._next < 0:
            return self._known.begins_at
        lowest = [
            self._wheel.first_offset(),
            self._cancellations.first_offset,
            self._rescheduler.first_offset,
        ]
        if self._batch is not None:
            lowest.append(int(self._batch.offsets.min()))
        return min([self._next, *(each for each in lowest if each is not None)])

    def _advance_read_time(self, now_ms: int) -> None:
        """Record the time up to which all messages are delivered."""
        first_ms = self._wheel.first_ms
        if self._batch is not None:
            first_ms = min(first_ms, int(self._batch.due_ms.min()))
        read_ms = min(now_ms, first_ms - 1) // TICK_MS * TICK_MS
        self._cancellations.forget(read_ms)
        # The time goes back with the clock, or for a message that came too late and is next.
        self._is_known = read_ms >= self._read_ms
        if self._is_known:
            self._read_ms = read_ms

    def _progress(self) -> CheckpointCandidate | None:
        """Return the next checkpoint; None while the delivered time is not known."""
        if not self._is_known:
            return None
        self._is_dirty = False
        checkpoint = TimerCheckpoint(
            read_ms=self._read_ms,
            first_offset=self._first_needed(),
            next_offset=self._next,
            state_version=self._saved.state_version,
            changed_at_ms=self._clock.wall_ms(),
            changes=self._saved.changes + 1,
        )
        look_behind = self._look_behind(checkpoint)
        return CheckpointCandidate(checkpoint._replace(look_behind=look_behind), self._end)

    async def _save_progress(self) -> StoreError | None:
        """Save a checkpoint when it is time and the checkpoint survives a loss of power.

        Returns:
            The refusal of the disk; the checkpoint before holds, and a retry follows in a second.
        """
        now_ms = self._clock.monotonic_ms()
        is_far = self._look_behind(self._saved) - self._saved.look_behind >= SEARCH_BYTES_MAX
        self._is_dirty |= is_far and self._next >= 0  # a timer that is off has not begun
        if self._candidate is None and self._is_dirty and now_ms - self._saved_at_ms >= _SAVE_MS:
            self._candidate = self._progress()
        candidate, refused = self._candidate, None
        if candidate is not None and candidate.end <= self._store.flushed_offset:
            self._candidate, self._saved_at_ms = None, now_ms
            try:
                await self._save(candidate.checkpoint)
            except StoreError as error:
                self._is_dirty, refused = True, error
                if not self._is_refused:
                    logger.warning("progress of timed messages not saved err=%s", error)
            else:
                self._saved = candidate.checkpoint
                self._store.session.timer_followed(self._saved.first_offset)
                self._copies = self._copies.rows(self._copies.offsets >= self._saved.first_offset)
            self._is_refused = refused is not None
        if self._candidate is not None or self._is_dirty:
            self._timer.poll(_SAVE_MS / 1000)
        return refused
