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
    """Return what `append` does, waiting for space in the log if it is just being made.

    Args:
        append: Raises BrokerBusy when there is none, and has done nothing then.
        space_made: Waits for what that append lacked; tells whether to try again.

    Raises:
        TernError: As `append`; BrokerBusy when no space was made in time.
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
    """Done when its topic, a new one, is on disk."""

    deadlines: Sequence[tuple[float | None, ResponseCode]]
    """Loop times, ascending, at which who waits for this is told so; None = never."""


REMARKS: Final = {
    ResponseCode.FLUSH_DISK_TIMEOUT: "stored, but it or its topic is not on disk in time; that"
    " goes on",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "stored here, but not by enough slaves in time; that goes on",
    ResponseCode.SLAVE_NOT_AVAILABLE: "stored here, but too few slaves have it",
}
"""Remarks about messages that are stored with another outcome than success."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AckPolicy:
    """Decides when an append is acknowledged. Owned by the broker's loop."""

    confirmations: Confirmations
    topics_saved: Callable[[], asyncio.Future[None] | None]
    """Returns the future of a topic that was just created; None = there is none."""

    sync_flush_timeout_ms: int
    slave_timeout_ms: int | None = None
    """Longest wait for slaves; None = for none."""

    refuses_without_replicas: bool = False
    """Senders are refused while too few slaves would get what they send."""

    def check(self, *, is_sender: bool = False) -> None:
        """Refuse to store anything while this broker may not.

        Args:
            is_sender: It is a producer's message, not one that the broker writes by itself.

        Raises:
            RefusedError: There is another master, or too few slaves follow.
        """
        refused = self.confirmations.refusal(
            needs_replicas=is_sender and self.refuses_without_replicas
        )
        if refused is not None:
            raise refused

    def begin(self, end: PhysicalOffset) -> PendingAck | None:
        """Return what to wait for before records that end at `end` are acknowledged.

        Returns:
            None when all is safe already.
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
        """Wait, and return what to say of the message; None = that it is safe.

        Returns:
            Else one of the codes that say how a message is stored.

        Raises:
            StoreError: The disk failed: whether it is stored is not known.
            RefusedError: There is another master: likewise.
        """
        confirmed, saved = pending.confirmed, pending.saved
        late = ResponseCode.FLUSH_DISK_TIMEOUT
        for deadline_s, told in pending.deadlines:
            try:
                async with asyncio.timeout_at(deadline_s):
                    if saved is not None:
                        await saved
                    code = await confirmed
                self.confirmations.check()
                return code
            except TimeoutError:
                late = self.confirmations.late(pending.end)
                if late is told:
                    break
                # The timeout has cancelled the others.
                confirmed, saved = self.confirmations.wait(pending.end), self.topics_saved()
        return late

    async def wait(self, end: PhysicalOffset, *, timeout_s: float | None = None) -> None:
        """Wait until everything below `end` counts as stored, and its topics will be there.

        That too few slaves have it is no error. Cancelling it is safe: the records stay in the log.

        Args:
            end: Of an append.
            timeout_s: Longest wait, s; None = the setting for senders, infinity = without end.

        Raises:
            RefusedError: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT: stored, and not confirmed in
                time. Or SERVICE_NOT_AVAILABLE, there is another master: it is not known.
            StoreFailed: The disk failed: whether it is stored is not known.
        """
        pending = self.begin(end)
        if pending is None:
            return
        if timeout_s is not None:
            until_s = asyncio.get_running_loop().time() + timeout_s
            is_endless = timeout_s == float("inf")
            told = ResponseCode.FLUSH_DISK_TIMEOUT
            pending = pending._replace(deadlines=[(None if is_endless else until_s, told)])
        try:
            code = await self.outcome(pending)
        except TernError as error:
            raise in_doubt(error) from error
        if code is not None and code is not ResponseCode.SLAVE_NOT_AVAILABLE:
            raise refusal(code, REMARKS[code], may_have_happened=True)


def in_doubt(error: TernError) -> TernError:
    """Return what to say when what lies in the log was never confirmed, because of `error`.

    It may or may not be stored, and the broker will not find out.
    """
    if isinstance(error, RefusedError):
        remark = f"appended, and whether it is stored is not known: {error.remark}"
        failed: TernError = refusal(error.code, remark)
    else:
        failed = StoreFailed(f"appended, and whether it is stored is not known: {error}")
    failed.may_have_happened = True
    return failed
