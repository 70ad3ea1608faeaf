"""Appends of internal records: those that the broker writes on a client's behalf."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from ternmq_broker.storage.ack_policy import AckPolicy, append_with_space
from ternmq_broker.storage.internal_record import InternalRecord, batches_of
from ternmq_model.errors import TernError
from ternmq_model.record.batch import RecordBatch
from ternmq_store.message_store import AppendResult


class InternalLog(Protocol):
    """The store, as far as internal appends need it."""

    def append(
        self, batch: RecordBatch, *, born_host: bytes | None, store_host: bytes
    ) -> AppendResult:
        """Store a checked batch, all of it or nothing. `born_host` None = what its headers say."""
        ...


class InternalWriter:
    """Appends records with the time and place of birth that each has. Owned by the broker's loop.

    It asks nothing of topics and adds nothing to properties: who writes knows where to. What is
    written is not rerouted either, so a record that is delivered with the property DELAY is not
    delayed again.

    Args:
        log: The store.
        on_appended: Called after every append: flushing and dispatching have something to do.
        ack_policy: Decides when an append counts.

    Attributes:
        store_host: Returns STOREHOST of every record; refuses until the broker listens.
        space_made: Waits for the space that an append refused as busy lacked; returns whether to
            try again.
        is_checksummed: Records end with a checksum.
    """

    def __init__(
        self,
        log: InternalLog,
        *,
        store_host: Callable[[], bytes],
        on_appended: Callable[[], None],
        space_made: Callable[[], Awaitable[bool]],
        ack_policy: AckPolicy,
        is_checksummed: bool,
    ) -> None:
        self._log = log
        self.store_host = store_host
        self._on_appended = on_appended
        self.space_made = space_made
        self._ack_policy = ack_policy
        self.is_checksummed = is_checksummed

    def append(self, records: Sequence[InternalRecord]) -> AppendResult:
        """Store records in their order; they count once the confirm offset is at `end`.

        All or none, as long as their born hosts have one length: those of IPv4 and IPv6 mixed are
        several appends, and the error of a later one says `may_have_happened`.

        Args:
            records: At least one.

        Raises:
            IllegalMessage: One of them can be no record; nothing is stored.
            IllegalName: Likewise.
            BrokerBusy: No space at this moment; try again, or use `put`.
            RefusedError: The broker does not listen yet, or is no longer the master, or a record is
                longer than a file.
            StoreError: The store takes nothing.
        """
        appended: list[AppendResult] = []
        for batch in self._batches(records):
            try:
                appended.append(self.append_batch(batch))
            except TernError as error:
                error.may_have_happened = bool(appended)
                raise
        return _joined(appended)

    def append_batch(self, batch: RecordBatch) -> AppendResult:
        """Store records that are encoded already, all or none, as `append` does.

        Args:
            batch: Its store hosts have the length of `store_host`, and it has checksums as
                `is_checksummed` says.

        Raises:
            TernError: As `append`; nothing is stored.
        """
        self._ack_policy.check()
        done = self._log.append(batch, born_host=None, store_host=self.store_host())
        self._on_appended()
        return done

    async def put(
        self, records: Sequence[InternalRecord], *, timeout_s: float | None = None
    ) -> AppendResult:
        """Store records and wait until they count: space is waited for up to 5 s.

        Cancelling it is safe; what is appended by then stays.

        Args:
            records: At least one.
            timeout_s: How long to wait for the disk: None = as a sender does, infinity = until it
                is known.

        Raises:
            RefusedError: As `append`; FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT `may_have_happened`:
                the log has it.
            StoreError: The store takes nothing; or with `may_have_happened`, it failed afterwards.
            UsageError: As `append`.
        """
        parts: list[AppendResult] = []
        for batch in self._batches(records):
            try:
                append = partial(self.append_batch, batch)
                parts.append(await append_with_space(append, self.space_made))
            except TernError as error:
                error.may_have_happened = bool(parts)
                raise
        appended = _joined(parts)
        await self._ack_policy.wait(appended.end, timeout_s=timeout_s)
        return appended

    def _batches(self, records: Sequence[InternalRecord]) -> Sequence[RecordBatch]:
        if not records:
            raise ValueError("nothing to store")
        host = self.store_host()
        return batches_of(records, store_host=host, is_checksummed=self.is_checksummed)


def _joined(parts: Sequence[AppendResult]) -> AppendResult:
    if len(parts) == 1:
        return parts[0]
    last = parts[-1]
    return AppendResult(
        np.concatenate([part.physical_offsets for part in parts]),
        np.concatenate([part.queue_offsets for part in parts]),
        last.stored_at_ms,
        last.end,
    )
