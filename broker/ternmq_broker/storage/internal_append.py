"""Appends of internal records, which the broker writes on behalf of a client."""

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
    """The part of the store that internal appends need."""

    def append(
        self, batch: RecordBatch, *, born_host: bytes | None, store_host: bytes
    ) -> AppendResult:
        """Store a checked batch as a whole or not at all. `born_host` None = those of records."""
        ...


class InternalWriter:
    """Appends records with their own born times and hosts. Owned by the broker's loop.

    Topics are not checked, and properties stay as they are. Records are not rerouted either, so a
    delivered record with the property DELAY is not delayed again.

    Args:
        log: The store.
        on_appended: Called after every append, to wake flush and dispatch.
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
        """Store records in their order; they are safe once the confirm offset is at `end`.

        Records with born hosts of one length are stored as a whole or not at all. Mixed hosts of
        IPv4 and IPv6 need several appends: the error of a later append has `may_have_happened`.

        Args:
            records: At least one.

        Raises:
            IllegalMessage: A record is illegal; nothing is stored.
            IllegalName: A topic is illegal; nothing is stored.
            BrokerBusy: No space at this moment; try again, or use `put`.
            RefusedError: The broker does not listen yet, or is no longer the master, or a record is
                longer than a file.
            StoreError: The store is read-only.
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
        """Store encoded records as a whole or not at all.

        Args:
            batch: Records with store hosts of the length of `store_host`, and with checksums if
                `is_checksummed`.

        Raises:
            TernError: An error of `append`; nothing is stored.
        """
        self._ack_policy.check()
        done = self._log.append(batch, born_host=None, store_host=self.store_host())
        self._on_appended()
        return done

    async def put(
        self, records: Sequence[InternalRecord], *, timeout_s: float | None = None
    ) -> AppendResult:
        """Store records, waiting up to 5 s for space, and wait until they are safe.

        Cancelling is safe; appended records stay.

        Args:
            records: At least one.
            timeout_s: Longest wait for the disk, s; None = the setting for senders, infinity = no
                limit.

        Raises:
            RefusedError: An error of `append`; FLUSH_DISK_TIMEOUT and FLUSH_SLAVE_TIMEOUT with
                `may_have_happened`: the log has the records.
            StoreError: The store is read-only; with `may_have_happened` it failed afterwards.
            UsageError: An error of `append`.
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
