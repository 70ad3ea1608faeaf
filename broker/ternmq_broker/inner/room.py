"""Appending when the log has no room at this moment, and knowing when an append is safe."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from ternmq_broker.confirmations import Confirmations
from ternmq_model.errors import BrokerBusy, StoreError, StoreFailed, refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode

T = TypeVar("T")

_ROOM_TIMEOUT_S: Final = 5.0


async def append_with_room(append: Callable[[], T], room_made: Callable[[], Awaitable[bool]]) -> T:
    """Return what `append` does, waiting for room in the log if it is just being made.

    Args:
        append: Raises BrokerBusy when there is none, and has done nothing then.
        room_made: Waits for what that append lacked; tells whether to try again.

    Raises:
        TernError: As `append`; BrokerBusy when no room was made in time.
    """
    try:
        return append()
    except BrokerBusy:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ROOM_TIMEOUT_S):
                while await room_made():
                    with contextlib.suppress(BrokerBusy):
                        return append()
    return append()


@dataclass(frozen=True, kw_only=True, slots=True)
class Safety:
    """Tells when what was appended may be relied on. Owned by the broker's loop."""

    confirmations: Confirmations
    topics_saved: Callable[[], asyncio.Future[None] | None]
    """What to wait for when a topic was just created; None = nothing."""

    sync_flush_timeout_ms: int

    async def wait(self, end: PhysicalOffset, *, timeout_s: float | None = None) -> None:
        """Wait until everything below `end` counts as stored, and its topics will be there.

        Cancelling it is safe: the records stay in the log.

        Args:
            end: Of an append.
            timeout_s: How long at most; None = the setting for senders, infinity = without end.

        Raises:
            RefusedError: FLUSH_DISK_TIMEOUT: stored, and not confirmed in time.
            StoreFailed: The disk failed: whether it is stored is not known.
        """
        saved = self.topics_saved()
        waited_s = self.sync_flush_timeout_ms / 1000 if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(None if waited_s == float("inf") else waited_s):
                await self.confirmations.wait(end)
                if saved is not None:
                    await saved
        except TimeoutError:
            raise refusal(
                ResponseCode.FLUSH_DISK_TIMEOUT,
                "stored, but it or its topic is not on disk in time; that goes on",
                may_have_happened=True,
            ) from None
        except StoreError as error:
            failed = StoreFailed(f"appended, and whether it is stored is not known: {error}")
            failed.may_have_happened = True
            raise failed from error
