"""Copy of another replica's log: a slave appends bytes of its master."""

import logging
from collections.abc import Callable

from ternmq_model.errors import BrokerBusy, CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import read_size
from ternmq_model.response_code import ResponseCode
from ternmq_store.dispatch.log_dispatcher import LogDispatcher
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.store_session import StoreSession
from ternmq_store.replication.log_slice import check_slice

logger = logging.getLogger(__name__)


class LogCopy:
    """Appender of pieces of another replica's log. Owned by `MessageStore`, on the store's thread.

    Args:
        log: Log to append to.
        session: Session of the directory, with the notes on the log.
        is_noting: Function that returns whether another thread may be writing the notes.

    Attributes:
        stored_at_ms: Store time of the newest copied record, Unix ms; 0 = none.
    """

    def __init__(
        self, log: CommitLog, session: StoreSession, is_noting: Callable[[], bool]
    ) -> None:
        self._log = log
        self._session = session
        self._is_noting = is_noting
        self.stored_at_ms = 0

    def take(self, data: bytes, at: PhysicalOffset, *, is_checksummed: bool, damage: str) -> None:
        """Append a piece. See `MessageStore.append_replicated`.

        Raises:
            CorruptRecord: The bytes are no records, or do not fit at `at`.
            BrokerBusy: The file or the notes are being written. Try again.
            StoreFull: There is no space.
            OSError: The disk failed.
        """
        log, session = self._log, self._session
        if at != log.end or at + len(data) > log.file_end or not data:
            raise CorruptRecord(
                at, f"{len(data)} bytes do not continue the log at {log.end} within one file"
            )
        stored_at_ms = 0 if damage else check_slice(data, at, file_end=log.file_end)
        if not is_checksummed and session.is_range_open and self._is_noting():
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, "the store's notes are being written")
        log.make_space_for(len(data))
        session.go_on(at, is_checksummed=is_checksummed)
        self.stored_at_ms = max(self.stored_at_ms, stored_at_ms)
        log.extend(data, stored_at_ms=self.stored_at_ms)
        if damage:
            session.quarantine.add(at, log.end, damage)

    def pass_over(self, dispatcher: LogDispatcher) -> None:
        """Quarantine the record that stopped `dispatcher`: its bytes are damaged at the source too.

        The size of the record was checked when it was copied, so the next record begins behind it.
        """
        error, dispatcher.stopped_by = dispatcher.stopped_by, None
        assert error is not None, "it is not stopped"
        file = self._log.files.at(error.offset)
        position = error.offset - file.base
        size = read_size(file.view, position)
        end = PhysicalOffset(min(error.offset + size, self._log.end))
        self._session.quarantine.add(error.offset, end, error.reason)
        logger.error(
            "replicated record is damaged log_offset=%d log_end=%d reason=%r",
            error.offset,
            end,
            error.reason,
        )
