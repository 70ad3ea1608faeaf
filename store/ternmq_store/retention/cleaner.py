"""Retention: removal of expired files, and refusal of appends on a full disk.

`retention.py` decides. A pass is a row of tasks for another thread, one after the other; between
two of them it works on the store's own thread, in short steps.

A file is first put out of reach of readers, then off the disk, in an order that every crash may
interrupt: the log's files one by one from the oldest on, each durably, then the consume queues'
files that tell of nothing else. So the log never has a gap, and a queue tells of records that are
gone, which opening takes note of, never the other way round; and so does the index.

Source: RocketMQ `CleanCommitLogService`, `CleanConsumeQueueService`.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ternmq_model.errors import BrokerBusy, StoreFull
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import (
    commit_log_folder,
    consume_queue_ext_folder,
    consume_queue_folder,
    file_name,
)
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.disk.resource_exhaustion import is_full
from ternmq_store.log.clock_moves import Moves, moved_ms
from ternmq_store.opened_files import OpenedFiles
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.units import PADDING_SIZE
from ternmq_store.retention.clean_tasks import (
    CleanTask,
    DiskUse,
    FileRemoval,
    PauseTask,
    RecordPosition,
    StoreTimeReading,
    UnlinkedFile,
)
from ternmq_store.retention.retention import (
    DeletionReason,
    DiskLevel,
    OldFile,
    disk_level,
    files_to_delete,
    forced_retention_ms,
    reason_to_delete,
    retention_ms,
)

logger = logging.getLogger(__name__)

_ROOM_BYTES: Final = 8 << 20
"""Room for the longest record and some more: with less, the file that is written counts as full."""

_ROOM_SHARE: Final = 8
"""Share of a short file that stands for `_ROOM_BYTES`: one in so many."""

_QUEUES_A_STEP: Final = 50
"""Queues that one step brings into agreement with the log; then the loop serves others."""

_SECOND_MS: Final = 1000
_HOUR_MS: Final = 3_600_000


class Cleaner:
    """Retention of one store, and its refusal of appends on a full disk.

    Owned by `MessageStore`, on the store's thread. One pass at a time.

    Attributes:
        config: Settings of retention.
        level: Level of the disk's use, as last measured.
        used_share: The same from 0 to 1.
        is_requested: True = the next passes delete expired files, whatever the hour.
        holders: Each tells from where on the log is needed by who has to deliver it; None = it is
            not. What lies there stays, unless the disk is full.
        held_end: End of the file that stayed only because a reader holds it; 0 = there is none.
        removed_files: Files of the log deleted since the store was opened.
    """

    def __init__(
        self,
        files: FileSystem,
        root: Path,
        config: StoreConfig,
        opened: OpenedFiles,
        *,
        safe_end: Callable[[], PhysicalOffset],
        now_ms: int,
    ) -> None:
        self._files = files
        self._folders = (commit_log_folder(root), consume_queue_folder(root))
        self._queue_folders = (consume_queue_folder(root), consume_queue_ext_folder(root))
        self.config = config
        self._log = opened.log
        self._queues = opened.queues
        self._index = opened.index
        self._safe_end = safe_end
        self._session = opened.session
        self._moves_seen = self._moves()
        self._first_pass_at_ms = now_ms + config.clean_delay_ms
        self._of_topics: Mapping[str, int] = {}
        self._first_at_ms: dict[ConsumeQueue, tuple[QueueOffset, int]] = {}
        self._ages: dict[int, int | None] = {}
        self._leaving: deque[UnlinkedFile] = deque()
        self._short_seen: OSError | None = None
        self._start_seen = PhysicalOffset(0)
        self.is_requested = False
        self.holders: list[Callable[[], PhysicalOffset | None]] = []
        self.held_end = PhysicalOffset(0)
        self._is_cleaning = self._is_removing = False
        self.level = DiskLevel.NORMAL
        self.used_share = 0.0
        self.removed_files = 0

    def _moves(self) -> Moves:
        """Return the steps of the clock that are noted."""
        return self._session.clock.moves

    def check_space(self) -> None:
        """Refuse an append on a full disk.

        Raises:
            StoreFull: Until the disk is less full than `disk_full_percent`.
        """
        if self.level is DiskLevel.FULL:
            raise StoreFull(
                f"the disk is {self.used_share:.0%} full: at {self.config.disk_full_percent} %"
                " and above no message is stored"
            )

    def disk_use(self) -> DiskUse:
        """Return the task that measures the use of the disk; `note_disk_use` must follow."""
        return DiskUse(self._files, self._folders)

    def note_disk_use(self, task: DiskUse) -> bool:
        """Record the result of `task`; return whether a pass may be due at once."""
        if task.error is not None:
            logger.warning("use of the disk not known error=%s", task.error)
            return False
        before, self.used_share = self.level, task.used_share
        self.level = disk_level(task.used_share, self.config)
        if self.level is not before:
            write = logger.info if self.level is DiskLevel.NORMAL else logger.warning
            write(
                "disk level=%s was=%s used=%.1f%% messages=%s",
                self.level.name,
                before.name,
                100 * self.used_share,
                "refused" if self.level is DiskLevel.FULL else "taken",
            )
        return self.level > before

    def keep_topics(self, of_topics: Mapping[str, int]) -> None:
        """Set the topics that have a retention of their own, in milliseconds."""
        self._of_topics = {topic: kept for topic, kept in of_topics.items() if kept > 0}

    def forget(self, topic: str) -> None:
        """Leave the files of a topic's queues alone, which is being deleted with all its files.

        Raises:
            BrokerBusy: Files of it are being removed this moment; try again.
        """
        folders = {folder / topic for folder in self._queue_folders}
        stay = [each for each in self._leaving if folders.isdisjoint(each.path.parents)]
        if len(stay) == len(self._leaving):
            return
        if self._is_removing:
            raise BrokerBusy(
                ResponseCode.SYSTEM_BUSY, f"expired files of topic {topic!r} are going"
            )
        for each in self._leaving:
            if each not in stay:
                each.discard(self._files)
        self._leaving = deque(stay)

    def request(self) -> None:
        """Request that the next passes delete expired files, whatever the hour."""
        self.is_requested = True

    def clean(self, now_ms: int | None, monotonic_ms: int, *, hour: int) -> Generator[CleanTask]:
        """Yield the tasks of one pass: each runs in another thread before the next is asked for.

        A caller that stops early closes the generator; the next pass goes on.

        Args:
            now_ms: Wall clock; None = it is in doubt, so that nothing goes by its age.
            monotonic_ms: Time by the monotonic clock.
            hour: 0 to 23, on the wall where the broker runs.
        """
        if self._is_cleaning:
            return
        self._is_cleaning = True
        try:
            if now_ms is not None:
                yield from self.end_topics(now_ms)
            yield from self._remove(self.config.delete_pause_ms)  # what the last pass left
            if self.is_requested or monotonic_ms >= self._first_pass_at_ms:
                yield from self._clean_log(now_ms, hour)
            yield from self._follow_log()
        finally:
            self._is_cleaning = False

    def _clean_log(self, now_ms: int | None, hour: int) -> Generator[CleanTask]:
        kept_ms = retention_ms(self.config, self._of_topics)
        held_before, self.held_end = self.held_end, PhysicalOffset(0)
        for _ in range(self.config.delete_files_max):
            reason = reason_to_delete(
                hour=hour,
                level=DiskLevel.FULL if self.is_short else self.level,
                is_requested=self.is_requested,
                config=self.config,
            )
            if reason is None or not (old := self._old_files()):
                break
            yield from self._learn_ages(old)
            if now_ms is not None and (self._newest_at_ms(old[0], now_ms) or 0) > now_ms:
                # A clock that was ahead has told its age: what lies behind it may know better.
                yield from self._learn_ages(self._log.files.files[:-1])
            count = files_to_delete(
                [self._old_file(file, now_ms) for file in old],
                reason,
                now_ms=now_ms,
                kept_ms=kept_ms,
                forced_kept_ms=forced_retention_ms(self.config),
                files_max=1,
            )
            if not count:
                break
            if self._is_held(old[0]):
                self.held_end = PhysicalOffset(old[0].end)
                if self.held_end != held_before:
                    logger.info(
                        "commit log file kept, not all of it is delivered file=%s reason=%r",
                        file_name(old[0].base),
                        reason.value,
                    )
                break
            self._short_seen = self._log.shortage
            has_expired = self._old_file(old[0], now_ms).has_aged(kept_ms, now_ms)
            self._drop(old[0], reason, now_ms, has_expired=has_expired)
            yield from self._remove(self.config.delete_pause_ms)
            if reason is not DeletionReason.HOUR:
                # Each file may be the one that makes room enough.
                use = self.disk_use()
                yield use
                self.note_disk_use(use)
        else:
            return
        self.is_requested = False

    def _is_held(self, file: MappedFile) -> bool:
        """Return whether messages in a file wait for delivery, and the log has room to wait for it.

        While the present file of the log has room, they can be delivered, or appended there again,
        although no next file could be made.
        """
        if self.level is DiskLevel.FULL or (self.is_short and not self._has_room()):
            return False
        needed = [offset for holder in self.holders if (offset := holder()) is not None]
        return min(needed, default=file.end) < file.end

    def _has_room(self) -> bool:
        """Return whether the present file of the log has room for some more records."""
        file = self._log.files.files[-1]
        wanted = min(_ROOM_BYTES, (file.end - file.base) // _ROOM_SHARE)
        return file.end - self._log.end >= wanted

    @property
    def is_short(self) -> bool:
        """True if the log could not grow, and no file was deleted since."""
        shortage = self._log.shortage
        return shortage is not None and shortage is not self._short_seen and is_full(shortage)

    def _old_files(self) -> Sequence[MappedFile]:
        """Return the oldest files of the log, in which all is on the disk and dispatched there."""
        end = min(self._safe_end(), PhysicalOffset(self._log.end - 1))
        files = self._log.files.files
        # The last one may be prepared and empty, or the one that is written: neither ends by then.
        return [file for file in files[: self.config.delete_files_max + 1] if file.end <= end]

    def _old_file(self, file: MappedFile, now_ms: int | None) -> OldFile:
        return OldFile(file.base, file.end, self._newest_at_ms(file, now_ms), file.holds > 0)

    def _newest_at_ms(self, file: MappedFile, now_ms: int | None) -> int | None:
        """Return when the youngest record of a file was stored at the earliest; None = not known.

        By the clock as it is now: it may have moved since.

        None is younger than any that lies behind the file. None is older than its first one, unless
        that was stored by a clock that was ahead.
        """
        known = {
            base: at_ms + moved_ms(self._moves(), PhysicalOffset(base))
            for base, at_ms in self._ages.items()
            if at_ms is not None
        }
        behind = min((at_ms for base, at_ms in known.items() if base >= file.end), default=None)
        first = known.get(file.base)
        if behind is None or first is None or now_ms is None or first > now_ms:
            return behind
        return max(behind, first)

    def _learn_ages(self, old: Sequence[MappedFile]) -> Generator[CleanTask]:
        bases = {base for file in old for base in (file.base, self._log.files.at(file.end).base)}
        wanted = sorted(bases - self._ages.keys())
        if wanted:
            task = StoreTimeReading(
                self._files, [self._place(PhysicalOffset(base)) for base in wanted]
            )
            yield task
            self._ages.update(zip(wanted, task.times, strict=True))

    def _place(self, offset: PhysicalOffset) -> RecordPosition:
        file = self._log.files.at(offset)
        return RecordPosition(file.file.path, offset - file.base, offset)

    def _drop(
        self, oldest: MappedFile, reason: DeletionReason, now_ms: int | None, *, has_expired: bool
    ) -> None:
        """Move the log's beginning behind its oldest file, which readers no longer find."""
        newest_at_ms = self._newest_at_ms(oldest, now_ms)
        age = "unknown"
        if newest_at_ms is not None and now_ms is not None:
            age = f"{(now_ms - newest_at_ms) / _HOUR_MS:.1f}h"
        logger.log(
            logging.INFO if has_expired else logging.WARNING,
            "commit log file deleted file=%s bytes=%d reason=%r expired=%s newest_message_age=%s",
            file_name(oldest.base),
            oldest.file_bytes,
            reason.value,
            "yes" if has_expired else "no",
            age,
        )
        self._leave(self._log.files.folder, self._log.files.drop_before(oldest.end))
        self._ages = {base: at_ms for base, at_ms in self._ages.items() if base > oldest.end}
        self.removed_files += 1

    def _leave(self, folder: Path, mapped: Sequence[MappedFile]) -> None:
        self._leaving += [UnlinkedFile(folder / file_name(file.base), file) for file in mapped]

    def _remove(self, pause_ms: int) -> Generator[CleanTask]:
        """Remove files out of reach of readers from the disk; failures are tried again later."""
        if not self._leaving:
            return
        task = FileRemoval(self._files, tuple(self._leaving), pause_ms / _SECOND_MS)
        self._is_removing = True
        try:
            yield task
        finally:
            self._is_removing = False
            task.is_abandoned = True
            for _ in range(task.removed):
                self._leaving.popleft()
        if task.error is not None:
            logger.warning(
                "files not deleted, tried again later count=%d error=%s",
                len(self._leaving),
                task.error,
            )

    def _follow_log(self) -> Generator[CleanTask]:
        """Move the beginnings of queues and index to the log's, and remove their older files."""
        start = self._log.start
        if start == self._start_seen:
            return
        for index, queue in enumerate(list(self._queues)):
            if index % _QUEUES_A_STEP == 0:
                yield PauseTask()
            if self._queues.find(queue.topic, queue.queue_id) is queue:
                queue.correct_min_offset(start)
                self._leave(queue.files.folder, queue.delete_read())
                if queue.ext is not None:
                    self._leave(queue.ext.files.folder, queue.delete_read_ext())
        if self._index is not None:
            self._leaving += [UnlinkedFile(path, None) for path in self._index.delete_before(start)]
        self._start_seen = start
        yield from self._remove(0)

    def end_topics(self, now_ms: int) -> Generator[CleanTask]:
        """Move the beginnings of queues with a shorter retention to their first unexpired message.

        A part of a pass, and all of one before anybody reads: nothing keeps these beginnings but
        this object. All queues are searched at once, by halving: one task reads a store time for
        each.
        """
        if (moves := self._moves()) != self._moves_seen:
            self._moves_seen = moves
            self._first_at_ms.clear()
        queues = [queue for queue in self._queues if queue.topic in self._of_topics]
        self._first_at_ms = {
            queue: self._first_at_ms[queue] for queue in queues if queue in self._first_at_ms
        }
        searches = [
            ExpirySearch(queue, now_ms - self._of_topics[queue.topic])
            for queue in queues
            if self._may_begin_later(queue, now_ms - self._of_topics[queue.topic])
        ]
        while open_ones := [search for search in searches if search.is_open]:
            places = [self._probe(search) for search in open_ones]
            task = StoreTimeReading(self._files, [place for place in places if place is not None])
            if task.places:
                yield task
            times = iter(task.times)
            for search, place in zip(open_ones, places, strict=True):
                at_ms = None if place is None else next(times)
                if place is not None and at_ms is not None:
                    at_ms += moved_ms(moves, place.at)
                search.narrow(at_ms, is_gone=place is None)
        for search in searches:
            queue = search.queue
            if self._queues.find(queue.topic, queue.queue_id) is queue:
                queue.begin_at(search.low)
                if search.found_at_ms is not None:
                    self._first_at_ms[queue] = (queue.min_offset, search.found_at_ms)

    def _may_begin_later(self, queue: ConsumeQueue, expired_by_ms: int) -> bool:
        first, at_ms = self._first_at_ms.get(queue, (QueueOffset(-1), 0))
        return queue.min_offset < queue.end and (
            first != queue.min_offset or at_ms <= expired_by_ms
        )

    def _probe(self, search: "ExpirySearch") -> RecordPosition | None:
        """Return the position of the record that `search` asks for; None when it is not there."""
        queue = search.queue
        if self._queues.find(queue.topic, queue.queue_id) is not queue:
            search.end()
            return None
        unit = queue.unit(search.middle)
        if unit.size == PADDING_SIZE or unit.offset < self._log.start:
            return None
        return self._place(unit.offset)


class ExpirySearch:
    """Search of one queue for its first message that has not expired. Owned by one pass."""

    def __init__(self, queue: ConsumeQueue, expired_by_ms: int) -> None:
        self.queue = queue
        self.low = queue.min_offset
        self.found_at_ms: int | None = None
        """Store time of the message at `low`, when that is known."""
        self._high = queue.end
        self._expired_by_ms = expired_by_ms
        self._is_first = True

    @property
    def is_open(self) -> bool:
        """True while there is a message to examine."""
        return self.low < self._high

    @property
    def middle(self) -> QueueOffset:
        """Message to examine next: the first one at first, which mostly is the result."""
        return self.low if self._is_first else QueueOffset((self.low + self._high) // 2)

    def narrow(self, stored_at_ms: int | None, *, is_gone: bool) -> None:
        """Record the store time of the message in the middle.

        One that cannot be read is kept: nobody knows its age, but its turn comes with its file.
        """
        if not self.is_open:
            return
        if is_gone or (stored_at_ms is not None and stored_at_ms <= self._expired_by_ms):
            self.low = QueueOffset(self.middle + 1)
            self._is_first = False
        else:
            self._high, self.found_at_ms = self.middle, stored_at_ms
            self._is_first = False

    def end(self) -> None:
        """End the search: the queue is gone."""
        self._high = self.low
