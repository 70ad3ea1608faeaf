"""Retention: removal of expired files, and refusal of appends on a full disk.

`retention.py` has the rules. A pass is a sequence of tasks for another thread. Between two tasks
the pass works on the store's own thread, in short steps.

A file is first hidden from readers and then removed, in an order that any crash may interrupt: the
log's files one by one from the oldest on, each durably, and then files of consume queues that lead
only to removed records. So the log never has a gap. After a crash, queues and the index may lead to
removed records, which the opening corrects; the reverse never happens.

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
"""Space for the longest record and some more. With less, the present file counts as full."""

_ROOM_SHARE: Final = 8
"""Divisor of the length of a short file, in place of `_ROOM_BYTES`."""

_QUEUES_A_STEP: Final = 50
"""Queues of one step that follows the begin of the log. Then the loop serves other tasks."""

_SECOND_MS: Final = 1000
_HOUR_MS: Final = 3_600_000


class Cleaner:
    """Retention of one store, and its refusal of appends on a full disk.

    Owned by `MessageStore`, on the store's thread. One pass at a time.

    Attributes:
        config: Settings of retention.
        level: Level of the disk's use in the last measurement.
        used_share: Used part of the disk in the last measurement, 0 to 1.
        free_bytes: Bytes until appends are refused; None = the last measurement failed.
        is_requested: True = the next passes delete expired files at any hour.
        holders: Functions that return the log offset from which on messages wait for delivery; None
            = none wait. Those files stay, unless the disk is full.
        held_end: End of the file that stays only because a reader holds it; 0 = none.
        removed_files: Number of files of the log deleted since the opening.
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
        self.free_bytes: int | None = None
        self.removed_files = 0

    def _moves(self) -> Moves:
        """Return the recorded steps of the clock."""
        return self._session.clock.moves

    def check_space(self) -> None:
        """Refuse an append on a full disk.

        Raises:
            StoreFull: The use of the disk is at least `disk_full_percent`.
        """
        if self.level is DiskLevel.FULL:
            raise StoreFull(
                f"the disk is {self.used_share:.0%} full: at {self.config.disk_full_percent} %"
                " and above no message is stored"
            )

    def disk_use(self) -> DiskUse:
        """Return the task that measures the use of the disk, for `note_disk_use`."""
        return DiskUse(self._files, self._folders, self.config.disk_full_percent / 100)

    def note_disk_use(self, task: DiskUse) -> bool:
        """Record the result of `task`. Return whether a pass may be due at once."""
        if task.error is not None:
            logger.warning("use of the disk not known err=%s", task.error)
            self.free_bytes = None
            return False
        before, self.used_share = self.level, task.used_share
        self.free_bytes = task.free_bytes
        self.level = disk_level(task.used_share, self.config)
        if self.level is not before:
            logger.log(
                logging.INFO if self.level is DiskLevel.NORMAL else logging.WARNING,
                "disk use=%s before=%s used_percent=%.1f sends=%s",
                self.level.name,
                before.name,
                100 * self.used_share,
                "refused" if self.level is DiskLevel.FULL else "taken",
            )
        return self.level > before

    def keep_topics(self, of_topics: Mapping[str, int]) -> None:
        """Set the topics with a retention of their own, ms."""
        self._of_topics = {topic: kept for topic, kept in of_topics.items() if kept > 0}

    def forget(self, topic: str) -> None:
        """Drop the queues of a topic that is being deleted with all its files.

        Raises:
            BrokerBusy: A task is removing files of the topic. Try again.
        """
        folders = {folder / topic for folder in self._queue_folders}
        stay = [each for each in self._leaving if folders.isdisjoint(each.path.parents)]
        if len(stay) == len(self._leaving):
            return
        if self._is_removing:
            raise BrokerBusy(
                ResponseCode.SYSTEM_BUSY, f"expired files of topic {topic!r} are being deleted"
            )
        for each in self._leaving:
            if each not in stay:
                each.discard(self._files)
        self._leaving = deque(stay)

    def request(self) -> None:
        """Request that the next passes delete expired files at any hour."""
        self.is_requested = True

    def clean(self, now_ms: int | None, monotonic_ms: int, *, hour: int) -> Generator[CleanTask]:
        """Yield the tasks of one pass. The caller runs each in another thread before the next.

        A caller that stops early closes the generator. The next pass goes on.

        Args:
            now_ms: Wall clock, Unix ms; None = in doubt, so that no file goes by its age.
            monotonic_ms: Monotonic clock, ms.
            hour: Hour of the broker's local time, 0 to 23.
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
                # The age may come from a clock that was ahead; later records may have a better one.
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
                        "commit log file retained, some of its messages are not delivered"
                        " file=%s reason=%r",
                        file_name(old[0].base),
                        reason.value,
                    )
                break
            self._short_seen = self._log.shortage
            has_expired = self._old_file(old[0], now_ms).has_aged(kept_ms, now_ms)
            self._drop(old[0], reason, now_ms, has_expired=has_expired)
            yield from self._remove(self.config.delete_pause_ms)
            if reason is not DeletionReason.HOUR:
                # Each removed file may give enough space.
                use = self.disk_use()
                yield use
                self.note_disk_use(use)
        else:
            return
        self.is_requested = False

    def _is_held(self, file: MappedFile) -> bool:
        """Return whether a file has messages that wait for delivery while the log has space.

        While the present file of the log has space, such messages can be delivered or appended
        again, even if no next file can be created.
        """
        if self.level is DiskLevel.FULL or (self.is_short and not self._has_room()):
            return False
        needed = [offset for holder in self.holders if (offset := holder()) is not None]
        return min(needed, default=file.end) < file.end

    def _has_room(self) -> bool:
        """Return whether the present file of the log has space for some more records."""
        file = self._log.files.files[-1]
        wanted = min(_ROOM_BYTES, (file.end - file.base) // _ROOM_SHARE)
        return file.end - self._log.end >= wanted

    @property
    def is_short(self) -> bool:
        """True if the log could not grow and no file has been deleted since."""
        shortage = self._log.shortage
        return shortage is not None and shortage is not self._short_seen and is_full(shortage)

    def _old_files(self) -> Sequence[MappedFile]:
        """Return the oldest files of the log: those on the disk and dispatched to the disk."""
        end = min(self._safe_end(), PhysicalOffset(self._log.end - 1))
        files = self._log.files.files
        # The last file may be prepared and empty, or be the present one: neither ends by then.
        return [file for file in files[: self.config.delete_files_max + 1] if file.end <= end]

    def _old_file(self, file: MappedFile, now_ms: int | None) -> OldFile:
        return OldFile(file.base, file.end, self._newest_at_ms(file, now_ms), file.holds > 0)

    def _newest_at_ms(self, file: MappedFile, now_ms: int | None) -> int | None:
        """Return the earliest possible store time of a file's youngest record; None = unknown.

        The time is by the present clock, which may have moved. No record of the file is younger
        than a record behind the file. No record is older than the first one, except if a clock that
        was ahead stored that one.
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
        """Move the log's begin behind its oldest file, which readers no longer find."""
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
        """Remove hidden files from the disk. Failed removals are repeated later."""
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
                "files not deleted, retry follows count=%d err=%s",
                len(self._leaving),
                task.error,
            )

    def _follow_log(self) -> Generator[CleanTask]:
        """Move the begins of queues and index to that of the log, and remove their older files."""
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
        """Move the begins of queues with a shorter retention to their first unexpired message.

        A pass includes this part. The opening of the store runs it alone before the first read,
        because no file has these begins. All queues are searched at once by bisection: each task
        reads one store time for each queue.
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
        """Return the position of the record that `search` needs; None = it is deleted."""
        queue = search.queue
        if self._queues.find(queue.topic, queue.queue_id) is not queue:
            search.end()
            return None
        unit = queue.unit(search.middle)
        if unit.size == PADDING_SIZE or unit.offset < self._log.start:
            return None
        return self._place(unit.offset)


class ExpirySearch:
    """Search of one queue for its first unexpired message. Owned by one pass."""

    def __init__(self, queue: ConsumeQueue, expired_by_ms: int) -> None:
        self.queue = queue
        self.low = queue.min_offset
        self.found_at_ms: int | None = None
        """Store time of the message at `low`, if known."""
        self._high = queue.end
        self._expired_by_ms = expired_by_ms
        self._is_first = True

    @property
    def is_open(self) -> bool:
        """True while there is a message to examine."""
        return self.low < self._high

    @property
    def middle(self) -> QueueOffset:
        """Message to examine next. The first message, mostly the result, comes first."""
        return self.low if self._is_first else QueueOffset((self.low + self._high) // 2)

    def narrow(self, stored_at_ms: int | None, *, is_gone: bool) -> None:
        """Record the store time of the message in the middle.

        A message with an unreadable time counts as unexpired. It is deleted with its file.
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
