"""What Send and SendStream stand on: storing, and knowing when that is safe."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

import numpy as np

from ternmq_broker.confirmations import Confirmations
from ternmq_broker.duplicates.retried import join_places, queue_ids_of, rest_of
from ternmq_broker.duplicates.stored_before import Lookup
from ternmq_broker.inner.room import append_with_room
from ternmq_broker.intake import Intake
from ternmq_broker.live_settings.settings import LiveSettings
from ternmq_broker.replies.forwarding import Replies
from ternmq_broker.sending import MessageWriter, Sender, Stored
from ternmq_model.clock import Clock
from ternmq_model.errors import (
    StoreError,
)
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import common_pb2 as common


@dataclass(frozen=True, kw_only=True, slots=True)
class SendServices:
    """What sending stands on. All owned by the broker's loop."""

    live: LiveSettings
    sync_flush_timeout_ms: int
    clock: Clock
    random: Random
    writer: MessageWriter
    confirmations: Confirmations
    intake: Intake
    properties_suffix: Callable[[], bytes]
    """What the broker adds to the properties of a message that is built now."""

    store_host: Callable[[], bytes]
    """Known when the broker listens."""

    topics_saved: Callable[[], asyncio.Future[None] | None]
    """What to wait for before sends to a topic just created are acknowledged; None = nothing."""

    room_made: Callable[[], Awaitable[bool]]
    """Waits for what an append that was refused as busy lacked, such as the log's next file; tells
    whether to try again."""

    is_closing: Callable[[], bool]

    stored_before: Lookup | None = None
    """Finds what a producer sends again; None when there is no index to look in."""

    replies: Replies | None = None
    """Passes replies on to who waits for them."""

    async def store(
        self, records: bytes, record_sizes: bytes, sender: Sender, *, whole: bool = False
    ) -> Stored:
        """Check and append, waiting for room in the log if it is just being made.

        Raises:
            TernError: Nothing was stored.
        """
        append = partial(self.writer.store, records, record_sizes, sender, whole=whole)
        return await append_with_room(append, self.room_made)

    def safe(self, end: PhysicalOffset) -> tuple[Sequence[asyncio.Future[None]], float]:
        """Return what to wait for before records that end at `end` are acknowledged, and how long.

        Returns:
            Futures that raise StoreError when the disk fails; none when all is safe already. The
            loop's time at which the sender is told that it takes too long.
        """
        saved = self.topics_saved()
        if saved is None and self.confirmations.reached(end):
            return (), 0.0
        confirmed = self.confirmations.wait(end)
        timeout_s = self.sync_flush_timeout_ms / 1000
        return (
            (confirmed,) if saved is None else (confirmed, saved),
            asyncio.get_running_loop().time() + timeout_s,
        )

    async def store_again(
        self, records: bytes, record_sizes: bytes, sender: Sender, *, whole: bool
    ) -> Stored:
        """Do what `store` does, but for records that are stored already: they are told, no more.

        Without an index nothing can be looked up, and everything is stored.

        Raises:
            TernError: Nothing was stored by this call.
        """
        if len(record_sizes) % 4:  # for `store` to refuse
            return await self.store(records, record_sizes, sender, whole=whole)
        sizes = np.frombuffer(record_sizes, dtype="<i4")
        found = await self.stored_before.find(records, sizes) if self.stored_before else {}
        if not found:
            return await self.store(records, record_sizes, sender, whole=whole)
        rest, rest_sizes, rows = rest_of(records, sizes, found)
        stored = None
        if rest:
            stored = await self.store(rest, rest_sizes.tobytes(), sender, whole=whole)
        return join_places(len(sizes), queue_ids_of(records, sizes), found, rows, stored)


_TIMED_OUT: Final = "stored, but it or its topic is not on disk in time; that goes on"


async def until_safe(
    safe: Sequence[asyncio.Future[None]], deadline_s: float
) -> common.Status | None:
    """Wait until what was appended is safe; return what to say when it does not become so.

    It lies in the log, so a plain refusal would be untrue, whatever happens.
    """
    if not safe:
        return None
    try:
        async with asyncio.timeout_at(deadline_s):
            for future in safe:
                await future
    except TimeoutError:
        return common.Status(code=ResponseCode.FLUSH_DISK_TIMEOUT, remark=_TIMED_OUT)
    except StoreError as error:
        # What lies in the log may or may not be on disk, and the broker will not find out.
        return common.Status(
            code=ResponseCode.SERVICE_NOT_AVAILABLE,
            remark=f"appended, and whether it is stored is not known: {error}",
            may_have_happened=True,
        )
    return None
