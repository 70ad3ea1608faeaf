"""Scanning processes in memory: for brokers on virtual time, and for tests of how they are used."""

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Iterator

from ternmq_store.scan_process.frames import (
    FrameHeader,
    FrameKind,
    FrameReader,
    ScanAnswer,
    ScanRequest,
    header_bytes,
)

CHUNK_BYTES = 256 << 10


class MemoryProcesses:
    """`Processes` whose children live in this process, and answer when they are read.

    Args:
        answer: Answers requests, as the real ones do.

    Attributes:
        children: Every one that was spawned.
        failure: Raised instead of spawning another.
    """

    def __init__(self, answer: Callable[[ScanRequest], Iterator[ScanAnswer]]) -> None:
        self._answer = answer
        self.children: list[MemoryChild] = []
        self.failure: OSError | None = None

    def spawn(self, module: str) -> "MemoryChild":
        """Return another child."""
        if self.failure is not None:
            raise self.failure
        child = MemoryChild(len(self.children) + 1, self._answer)
        self.children.append(child)
        return child

    @property
    def living(self) -> list["MemoryChild"]:
        """Those that have not ended."""
        return [child for child in self.children if not child.has_ended]


class MemoryChild:
    """One child.

    Attributes:
        requests: What it was asked.
        read_bytes: What was read of it.
        is_silent: It says nothing more.
        is_stuck: It does not end when its input does.
    """

    def __init__(self, pid: int, answer: Callable[[ScanRequest], Iterator[ScanAnswer]]) -> None:
        self._pid = pid
        self._answer = answer
        self._frames = FrameReader()
        self._payload = b""
        self._output: deque[bytes] = deque()
        self._answers: Iterator[ScanAnswer] = iter(())
        self._request_id = 0
        self._is_stopped = False
        self._has_ended = False
        self._changed = asyncio.Event()
        self.requests: list[ScanRequest] = []
        self.read_bytes = 0
        self.is_silent = self.is_stuck = False
        self._code = 0

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    async def write(self, data: bytes) -> None:
        if self._has_ended:
            raise BrokenPipeError
        for header, part, is_last in self._frames.feed(data):
            self._payload += part
            if not is_last:
                continue
            payload, self._payload = self._payload, b""
            if header.kind is FrameKind.STOP:
                self._is_stopped |= header.request_id >= self._request_id
            else:
                self.requests.append(ScanRequest.from_bytes(payload))
                self._request_id, self._is_stopped = header.request_id, False
                self._answers = self._answer(self.requests[-1])
        self._changed.set()

    async def read(self) -> bytes:
        while not self._has_ended:
            self._changed.clear()
            if not self._output:
                self._next()
            if self._output:
                data = self._output.popleft()
                if len(data) > CHUNK_BYTES:
                    self._output.appendleft(data[CHUNK_BYTES:])
                self.read_bytes += len(data[:CHUNK_BYTES])
                return data[:CHUNK_BYTES]
            await self._changed.wait()
        return b""

    def _next(self) -> None:
        if self.is_silent:
            return
        try:
            answer = next(self._answers, None)
        except SystemExit as error:
            self.kill(int(str(error)))
            return
        if answer is None:
            return
        if self._is_stopped and answer.kind is not FrameKind.END:
            answer = ScanAnswer(FrameKind.END)
        if answer.kind is FrameKind.END:
            self._answers = iter(())
        kind, payload, next_offset, damaged, rows = answer
        header = FrameHeader(kind, self._request_id, len(payload), next_offset, damaged, rows)
        self._output.append(header_bytes(header))
        if len(payload):
            self._output.append(bytes(payload))

    def kill(self, code: int = -signal.SIGKILL) -> None:
        if not self._has_ended:
            self._code = code
        self._has_ended = True
        self._changed.set()

    async def end(self) -> int:
        while self.is_stuck and not self._has_ended:
            self._changed.clear()
            await self._changed.wait()
        self.kill(0)
        return self._code
