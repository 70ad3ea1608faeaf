"""Polls of a pull consumer: messages as objects, or as Arrow columns."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ternmq_consumer.pull.fetched_queue import DECODED_BYTES_MAX
from ternmq_consumer.pull.seeking_pull_consumer import SeekingPullConsumer
from ternmq_model.arguments import check_seconds, is_whole
from ternmq_model.columns.column_names import check_columns
from ternmq_model.columns.pyarrow_support import check_pyarrow
from ternmq_model.errors import UsageError
from ternmq_model.stored_message import StoredMessage

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

POLL_MESSAGES_MAX: Final = 4096
"""Default of the most messages of one `poll`."""

_MANY_BYTES: Final = 256 << 10
"""Waiting bytes of records of which a full reply of a broker has more: others probably follow."""

_NEXT_REPLY_S: Final = 0.001
_GATHERING_S: Final = 0.004
_GATHERING_TIMEOUT_S: Final = 0.1
"""Longest waits for one more reply and for all of them, and the timeout of a call that waits, s."""


class PollingPullConsumer(SeekingPullConsumer):
    """Base of the pull consumer with its polls."""

    @abstractmethod
    async def _prepare_poll(self) -> None:
        """Settle earlier polls and seeks, and begin new queues. See `poll` for the errors."""

    @abstractmethod
    def _count(self, messages: int) -> None:
        """Count messages that a poll returns."""

    @abstractmethod
    def _raise_news(self) -> None:
        """Raise the first stored error, if any; also if the consumer is closed."""

    async def poll(
        self, *, timeout_s: float = 1.0, messages_max: int = POLL_MESSAGES_MAX
    ) -> list[StoredMessage]:
        """Wait for messages of the assigned queues and return them.

        Messages of one queue come in the order of their offsets; the queues take turns. Cancelling
        is safe: the next call returns the messages.

        Args:
            timeout_s: Longest wait for a message, after the start offsets of all queues are known,
                s. 0 = no wait.
            messages_max: Most messages, at least 1.

        Returns:
            Messages; an empty list after `timeout_s`.

        Raises:
            ClosedError: The consumer is closed, perhaps during the wait.
            CorruptRecord: A broker sent corrupt records of one queue. Positions stay; the next call
                reads that queue again.
            PermissionRefused: A queue or a whole topic may not be read, or the group may not
                consume. The consumer asks again every few seconds, and one call after each refusal
                raises this error; other calls serve the other queues. Positions stay.
            RefusedError: A broker refuses the filter of a queue. The consumer asks again every few
                seconds.
            TopicNotFound: An assigned queue, which the error names, is gone. Its position and its
                waiting records are lost. The queue stays assigned: each call raises this error
                until the queue exists again and begins like a new one. `assign` other queues to go
                on.
            TransportError: The start offset of an assigned queue, or the target of a seek that was
                not awaited, could not be read.
            UsageError: No queue is assigned and no topic is subscribed.
            Exception: A callback given to `subscribe` raised the error.
        """
        if not is_whole(messages_max) or messages_max < 1:
            raise UsageError(f"messages_max={messages_max!r}: must be 1 or more, a whole number")
        found = await self._poll(timeout_s, lambda: self._queues.take(messages_max)) or []
        self._count(len(found))
        return found

    async def poll_columns(
        self, *, timeout_s: float = 1.0, columns: Iterable[str] = ()
    ) -> "pa.RecordBatch":
        """Wait for messages of the assigned queues and return them as rows of an Arrow batch.

        The batch has the columns of the Spark source, and no message object is made.
        Rows of one queue come in the order of their offsets; the queues take turns. A call returns
        what the consumer has prefetched, up to 4 MiB of the queues of one broker with the same
        tags, or up to some hundred KiB of others and the rest of one reply of a broker. It waits up
        to 4 ms for more while a broker sends full replies and `timeout_s` is 0.1 or more.
        Positions, commits, filters and errors are those of `poll`, and the two calls may alternate.
        A compressed body that cannot be decompressed is null.

        Args:
            timeout_s: Longest wait for a message, s. 0 = no wait.
            columns: Names of the columns, in this order; empty = all.

        Returns:
            Messages; a batch without rows after `timeout_s`.

        Raises:
            MissingPackage: pyarrow is not installed, the extra `arrow`; or a compressed body needs
                the extra `compression`. Positions stay.
            UsageError: A column does not exist, no queue is assigned, or no topic is subscribed.
            Exception: Other errors are those of `poll`.
        """
        check_pyarrow()
        from ternmq_model.columns.batches import empty_batch

        names = check_columns(columns)
        take = partial(self._queues.take_columns, names)
        found = await self._poll(timeout_s, take, gathers=True)
        self._count(0 if found is None else found.num_rows)
        return empty_batch(names) if found is None else found

    async def _poll(
        self, timeout_s: float, take: Callable[[], T | None], *, gathers: bool = False
    ) -> T | None:
        """Wait until `take` returns something; None = nothing within `timeout_s`.

        Args:
            timeout_s: Longest wait, s.
            take: Function that returns messages.
            gathers: True = a little time is given to further replies of a broker that has many.
        """
        timeout_s = (
            timeout_s if timeout_s == float("inf") else check_seconds("timeout_s", timeout_s)
        )
        await self._prepare_poll()
        # A loop of polls must give reading ahead and heartbeats their turn.
        await asyncio.sleep(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s) as limit:
                while True:
                    if gathers and timeout_s >= _GATHERING_TIMEOUT_S:
                        deadline = limit.when()
                        limit.reschedule(None)  # what waits is given out at the deadline, too
                        await self._gather()
                        limit.reschedule(deadline)
                    await self._seeks.settled()  # what was read before is not given out meanwhile
                    if found := take():
                        return found
                    self._raise_news()
                    self._queues.arrived.clear()
                    await self._queues.arrived.wait()
        return None

    async def _gather(self) -> None:
        """Wait for more replies while enough records wait to expect them, and too few to decode."""
        queues = self._queues
        with suppress(TimeoutError):
            async with asyncio.timeout(_GATHERING_S):
                while _MANY_BYTES <= queues.waiting_bytes < DECODED_BYTES_MAX:
                    queues.arrived.clear()
                    async with asyncio.timeout(_NEXT_REPLY_S):
                        await queues.arrived.wait()
