"""The rule by which appends are acknowledged, and appends that wait for space in the log."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from ternmq_broker.storage.confirmations import Confirmations, Confirmed
from ternmq_model.errors import BrokerBusy, RefusedError, StoreFailed, TernError, refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode

T = TypeVar("T")

_SPACE_TIMEOUT_S: Final = 5.0


async def append_with_space(
    append: Callable[[], T], space_made: Callable[[], Awaitable[bool]]
) -> T:
    """Return the result of `append`, after a wait for space in the log if that is being made.

    Args:
        append: Appends, or raises BrokerBusy without space and without an effect.
        space_made: Waits for the missing space; returns whether to try again.

    Raises:
        TernError: An error of `append`; BrokerBusy when no space was made in time.
    """
    try:
        return append()
    except BrokerBusy:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SPACE_TIMEOUT_S):
                while await space_made():
                    with contextlib.suppress(BrokerBusy):
                        return append()
    return append()


class PendingAck(NamedTuple):
    """An append that is not acknowledged yet, and the conditions for it."""

    end: PhysicalOffset
    confirmed: Confirmed
    saved: asyncio.Future[None] | None
    """Done when the new topic of the append is on disk; None = no new topic."""

    deadlines: Sequence[tuple[float | None, ResponseCode]]
    """Loop times, ascending, at which the wait ends with this code; None = never."""


REMARKS: Final = {
    ResponseCode.FLUSH_DISK_TIMEOUT: (
        "stored, but the message or its topic is not on disk in time; the flush continues"
    ),
    ResponseCode.FLUSH_SLAVE_TIMEOUT: (
        "stored here, but not by enough slaves in time; replication continues"
    ),
    ResponseCode.SLAVE_NOT_AVAILABLE: "stored here, but too few slaves have the message",
}
"""Remarks about messages that are stored with another outcome than success."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AckPolicy:
    """Decides when an append is acknowledged. Owned by the broker's loop."""

    confirmations: Confirmations
    topics_saved: Callable[[], asyncio.Future[None] | None]
    """Returns the future of the save of new topics; None = all topics are saved."""

    sync_flush_timeout_ms: int
    slave_timeout_ms: int | None = None
    """Longest wait for slaves; None = the policy does not wait for slaves."""

    refuses_without_replicas: bool = False
    """True to refuse sends while too few slaves follow."""

    def check(self, *, is_sender: bool = False) -> None:
        """Refuse an append that this broker may not store.

        Args:
            is_sender: True for messages of producers, False for those of the broker itself.

        Raises:
            RefusedError: Another process is the master, or too few slaves follow.
        """
        refused = self.confirmations.refusal(
            needs_replicas=is_sender and self.refuses_without_replicas
        )
        if refused is not None:
            raise refused

    def begin(self, end: PhysicalOffset) -> PendingAck | None:
        """Return the pending acknowledgement of an append; None when it is safe already.

        Args:
            end: Log offset behind the append.
        """
        saved = self.topics_saved()
        if saved is None and self.confirmations.is_safe(end):
            return None
        now_s = asyncio.get_running_loop().time()
        deadlines: list[tuple[float | None, ResponseCode]]
        deadlines = [(now_s + self.sync_flush_timeout_ms / 1000, ResponseCode.FLUSH_DISK_TIMEOUT)]
        if self.slave_timeout_ms is not None:
            until_s = now_s + self.slave_timeout_ms / 1000
            slaves = (until_s, ResponseCode.FLUSH_SLAVE_TIMEOUT)
            deadlines.insert(0 if self.slave_timeout_ms < self.sync_flush_timeout_ms else 1, slaves)
        return PendingAck(end, self.confirmations.wait(end), saved, deadlines)

    async def outcome(self, pending: PendingAck) -> ResponseCode | None:
        """Wait, and return the outcome of an append: None = safe, else a code of `REMARKS`.

        Raises:
            StoreError: The disk failed, and the append may be lost.
            RefusedError: Another process is the master, and the append may be lost.
        """
        confirmed, saved = pending.confirmed, pending.saved
        late = ResponseCode.FLUSH_DISK_TIMEOUT
        for deadline_s, cause in pending.deadlines:
            try:
                async with asyncio.timeout_at(deadline_s):
                    if saved is not None:
                        await saved
                    code = await confirmed
                self.confirmations.check()
                return code
            except TimeoutError:
                late = self.confirmations.late(pending.end)
                if late is cause:
                    break
                # The timeout has cancelled the others.
                confirmed, saved = self.confirmations.wait(pending.end), self.topics_saved()
        return late

    async def wait(self, end: PhysicalOffset, *, timeout_s: float | None = None) -> None:
        """Wait until all records below `end` and their topics are safe.

        Too few slaves are no error. Cancelling is safe: the records stay in the log.

        Args:
            end: Log offset behind an append.
            timeout_s: Longest wait, s; None = the setting for senders, infinity = no limit.

        Raises:
            RefusedError: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT: stored, and not confirmed in
                time. SERVICE_NOT_AVAILABLE: another process is the master, and the append may be
                lost.
            StoreFailed: The disk failed, and the append may be lost.
        """
        pending = self.begin(end)
        if pending is None:
            return
        if timeout_s is not None:
            until_s = asyncio.get_running_loop().time() + timeout_s
            is_endless = timeout_s == float("inf")
            late = ResponseCode.FLUSH_DISK_TIMEOUT
            pending = pending._replace(deadlines=[(None if is_endless else until_s, late)])
        try:
            code = await self.outcome(pending)
        except TernError as error:
            raise in_doubt(error) from error
        if code is not None and code is not ResponseCode.SLAVE_NOT_AVAILABLE:
            raise refusal(code, REMARKS[code], may_have_happened=True)


def in_doubt(error: TernError) -> TernError:
    """Return the error for an append that lies in the log and was not confirmed due to `error`.

    The append may be lost, and the broker cannot find out.
    """
    if isinstance(error, RefusedError):
        remark = f"appended, and whether it is stored is not known: {error.remark}"
        failed: TernError = refusal(error.code, remark)
    else:
        failed = StoreFailed(f"appended, and whether it is stored is not known: {error}")
    failed.may_have_happened = True
    return failed
