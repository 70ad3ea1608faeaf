"""Dispatcher of traces in the background, without delays of messages.

Source: RocketMQ `AsyncTraceDispatcher`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Final

from ternmq_client.tracing.trace_records import TraceRecord, encode
from ternmq_model.errors import TernError
from ternmq_model.properties import KEY_SEPARATOR
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import Job, JobRunner
from ternmq_runtime.timers import Timers

logger = logging.getLogger(__name__)

QUEUE_MAX: Final = 2_048
"""Most calls with waiting traces."""

BATCH_MAX: Final = 10
"""Most calls in one trace message."""

BODY_BYTES_MAX: Final = 128_000
KEYS_BYTES_MAX: Final = 16_384
"""Most bytes of the keys of one trace message: half of the limit of properties."""

_FLUSH_S: Final = 5.0
_CLOSE_TIMEOUT_S: Final = 3.0

SendTrace = Callable[[bytes, str], Awaitable[object]]
"""Coroutine function that sends a body with its keys, joined by blanks."""


@dataclass(frozen=True, slots=True)
class TraceStatistics:
    """Numbers of traced calls by outcome."""

    sent: int
    dropped: int
    """Number of calls that were dropped because too many were waiting."""

    failed: int
    """Number of calls whose traces the broker did not store."""


Traces = Sequence[TraceRecord]
"""Traces of one call: of a send, or of a listener."""


class TraceDispatcher(Lifecycle):
    """Sender of traces in the background, open inside `async with`.

    Owned by one producer or consumer, on its loop. Leaving sends waiting traces within 3 s. Traces
    that cannot be sent are counted and dropped.

    Args:
        send: Coroutine function that sends one trace message.
    """

    def __init__(self, send: SendTrace, timers: Timers) -> None:
        self._send = send
        self._timers = timers
        self._waiting: deque[Traces] = deque()
        self._job = Job(name="trace", interval_s=_FLUSH_S, step=self.step)
        self._sent = 0
        self._dropped = 0
        self._failed = 0

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._flush)
        await stack.enter_async_context(JobRunner(self._job, timers=self._timers))

    @property
    def statistics(self) -> TraceStatistics:
        """Numbers of traced calls."""
        return TraceStatistics(self._sent, self._dropped, self._failed)

    def offer(self, traces: Traces) -> bool:
        """Queue a call's traces. Return False if too many are waiting: the traces are dropped.

        Traces of several calls share a message, which is sent after 5 s at the latest.
        """
        if len(self._waiting) >= QUEUE_MAX:
            self._dropped += 1
            return False
        self._waiting.append(traces)
        if len(self._waiting) == BATCH_MAX:
            self._job.wake()
        return True

    async def step(self) -> bool:
        """Send one message with waiting traces. Step of the job."""
        calls = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
        for body, keys in trace_messages(calls):
            try:
                await self._send(body, keys)
            except TernError as error:
                if not self._failed:
                    logger.warning("traces are not accepted err=%s", error)
                self._failed += len(calls)
                return bool(self._waiting)
        self._sent += len(calls)
        return bool(self._waiting)

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                while self._waiting:
                    await self.step()
        except TimeoutError:
            self._failed += len(self._waiting)
            self._waiting.clear()


def trace_messages(calls: Sequence[Traces]) -> Iterator[tuple[bytes, str]]:
    """Yield bodies and keys of the messages with the traces of some calls. Pure.

    Searches find traces by these keys: ids of messages and business keys. A message is full at
    128,000 bytes, or at the limit of its keys; a longer record is a message of its own.
    """
    body: list[bytes] = []
    keys: dict[str, None] = {}
    body_bytes = keys_bytes = 0
    for record in chain.from_iterable(calls):
        text, mine = encode(record).encode(), keys_of(record)
        more = sum(len(key.encode()) + 1 for key in mine if key not in keys)
        is_full = body_bytes + len(text) > BODY_BYTES_MAX or keys_bytes + more > KEYS_BYTES_MAX
        if body and is_full:
            yield b"".join(body), KEY_SEPARATOR.join(keys)
            body, keys, body_bytes, keys_bytes = [], {}, 0, 0
            more = sum(len(key.encode()) + 1 for key in mine)
        body.append(text)
        keys.update(dict.fromkeys(mine))
        body_bytes += len(text)
        keys_bytes += more
    if body:
        yield b"".join(body), KEY_SEPARATOR.join(keys)


def keys_of(record: TraceRecord) -> list[str]:
    """Return the keys of a trace, without business keys that are too long. Pure."""
    found = [record.message_id]
    if record.keys and len(record.keys.encode()) + len(record.message_id) < KEYS_BYTES_MAX:
        found += record.keys.split(KEY_SEPARATOR)
    return [key for key in dict.fromkeys(found) if key]
