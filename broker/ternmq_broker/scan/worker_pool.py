"""Pool of the scan processes: a limited number, with turns for waiting ranges.

A process scans one range at a time, and yields a long one to waiting ranges after a turn. It shares
no state with the broker: it opens the store's files for itself, and only for reads.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Final

from ternmq_model.clock import Clock
from ternmq_model.errors import BrokerBusy, ClosedError
from ternmq_model.response_code import ResponseCode
from ternmq_runtime.processes import ChildProcess, Processes
from ternmq_runtime.service import Job
from ternmq_store.scan_process.frames import (
    FrameKind,
    FramePart,
    FrameReader,
    ScanRequest,
    frame_bytes,
)

logger = logging.getLogger(__name__)

CHILD_MODULE: Final = "ternmq_store.scan_process.child"
IDLE_MS: Final = 60_000
"""Idle time after which a process is ended."""

TURN_MS: Final = 2_000
"""Time after which a range yields its process to a waiting one."""

_TIDY_S: Final = 10.0
_STOP_S: Final = 10.0
"""Time to stop an abandoned scan, after which the process is killed."""

_SILENT_S: Final = 120.0
"""Time without an answer after which a process is killed."""


class ScanProcess:
    """A scan process and its present range. Owned by its pool.

    Attributes:
        child: Child process.
        idle_since_ms: Start of the present idle time, on the monotonic clock.
        taken_at_ms: Start of the present turn, on the monotonic clock.
        is_scanning: True during a scan.
        is_broken: True if the process must be ended.
        code: Exit code of a process that ended by itself; None = unknown.
    """

    def __init__(self, child: ChildProcess) -> None:
        self.child = child
        self.idle_since_ms = 0
        self.taken_at_ms = 0
        self.is_scanning = False
        self.is_broken = False
        self.code: int | None = None
        self._request_id = 0
        self._frames = FrameReader()
        self._parts: Iterator[FramePart] = iter(())

    async def begin(self, request: ScanRequest) -> None:
        """Send a scan request to the process.

        Raises:
            BrokerBusy: The process has ended.
        """
        self._request_id += 1
        self.is_scanning = True
        try:
            await self.child.write(
                frame_bytes(FrameKind.REQUEST, self._request_id, request.to_bytes())
            )
        except OSError:
            raise await self._ended() from None

    async def read(self) -> FramePart:
        """Return the next part of the answer; `END` is the last one.

        Raises:
            BrokerBusy: The process has ended, or has sent an impossible frame.
        """
        while True:
            for part in self._parts:
                if part.header.request_id != self._request_id:
                    raise self._broke("has sent an invalid frame")
                if part.header.kind is FrameKind.END and part.is_last:
                    self.is_scanning = False
                return part
            self._parts = self._frames.feed(await self._more())

    async def _more(self) -> bytes:
        try:
            async with asyncio.timeout(_SILENT_S):
                data = await self.child.read()
        except TimeoutError:
            raise self._broke(f"has sent nothing for {_SILENT_S:g} s") from None
        except OSError:
            data = b""
        if not data:
            raise await self._ended()
        return data

    async def stop(self) -> None:
        """Stop the present scan, so that the process is ready for another.

        Raises:
            BrokerBusy: The process has ended.
            TimeoutError: The scan does not stop.
        """
        if not self.is_scanning:
            return
        async with asyncio.timeout(_STOP_S):
            try:
                await self.child.write(frame_bytes(FrameKind.STOP, self._request_id))
            except OSError:
                raise await self._ended() from None
            while self.is_scanning:
                await self.read()

    async def _ended(self) -> BrokerBusy:
        self.code = code = await self.child.end()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        return self._broke(f"has ended {how}")

    def _broke(self, reason: str) -> BrokerBusy:
        self.is_broken = True
        remark = f"the process that scanned (pid {self.child.pid}) {reason}: try again"
        return BrokerBusy(ResponseCode.SYSTEM_BUSY, remark)


class ScanPool:
    """Scan processes of one term of a broker. Owned by the broker's loop.

    Args:
        processes: Spawner of the processes.
        clock: Clock of idle times and turns.
        processes_max: Most processes at a time.

    Attributes:
        job: Job that stops abandoned scans, and ends processes after a long idle time.
        may_map: True = processes may map log files. False after an unreadable map has ended one:
            plain reads report the error.
    """

    def __init__(
        self,
        processes: Processes,
        clock: Clock,
        *,
        processes_max: int,
    ) -> None:
        self._processes = processes
        self._clock = clock
        self.job: Final = Job(name="scan-processes", interval_s=_TIDY_S, step=self._tidy)
        self._turns = asyncio.Semaphore(processes_max)
        self._waiting = 0
        self._used: list[ScanProcess] = []
        self._idle: list[ScanProcess] = []
        self._stopping: list[ScanProcess] = []
        """Processes with an abandoned scan that has not stopped: they count for the limit."""
        self._ending: list[ScanProcess] = []
        self._is_open = True
        self.may_map = True

    @asynccontextmanager
    async def process(self) -> AsyncGenerator[ScanProcess]:
        """Provide a process for one range, when a turn is free.

        An exit from the block in the middle of a range stops the scan.

        Raises:
            BrokerBusy: No process can be started.
            ClosedError: The pool was closed.
        """
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            one = self._take()
        except BaseException:
            self._turns.release()
            raise
        self._used.append(one)
        one.taken_at_ms = self._clock.monotonic_ms()
        try:
            yield one
        finally:
            self._used.remove(one)
            self._give_back(one)

    def is_turn_over(self, one: ScanProcess) -> bool:
        """Return whether the user of a process should yield it to a waiting range."""
        return self._waiting > 0 and self._clock.monotonic_ms() >= one.taken_at_ms + TURN_MS

    def drain(self) -> None:
        """Kill all processes and refuse waiting and new requests. Safe to repeat."""
        self._is_open = False
        self._turns.release()
        for one in self._all():
            one.child.kill()

    async def close(self) -> None:
        """End all processes. No range may use one any more. Safe to repeat."""
        self.drain()
        while processes := self._all():
            for one in processes:
                await self._end(one)

    def _all(self) -> list[ScanProcess]:
        return [*self._used, *self._idle, *self._stopping, *self._ending]

    def _take(self) -> ScanProcess:
        if not self._is_open:
            raise ClosedError("the scan service is closed")
        while self._idle:
            one = self._idle.pop()
            if not one.child.has_ended:
                return one
            self._ending.append(one)
        try:
            child = self._processes.spawn(CHILD_MODULE)
        except OSError as error:
            remark = f"no process can be started: {error}"
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, remark) from error
        logger.info("scan process began pid=%s", child.pid)
        return ScanProcess(child)

    def _give_back(self, one: ScanProcess) -> None:
        if one.code == -signal.SIGBUS:
            logger.warning("scans no longer map files, a map failed pid=%s", one.child.pid)
            self.may_map = False
        if one.is_broken or not self._is_open:
            one.child.kill()
            self._ending.append(one)
        elif one.is_scanning:
            self._stopping.append(one)
            self.job.wake()
            return
        else:
            self._rest(one)
        self._turns.release()

    def _rest(self, one: ScanProcess) -> None:
        one.idle_since_ms = self._clock.monotonic_ms()
        self._idle.append(one)

    async def _tidy(self) -> bool:
        while self._stopping:
            one = self._stopping[0]
            try:
                await one.stop()
            except (BrokerBusy, TimeoutError):
                one.is_broken = True
            self._stopping.remove(one)
            self._give_back(one)
        expired_ms = self._clock.monotonic_ms() - IDLE_MS
        idle = self._idle
        over = [one for one in idle if one.idle_since_ms <= expired_ms or one.child.has_ended]
        for one in (*self._ending, *over):
            await self._end(one)
        return False

    async def _end(self, one: ScanProcess) -> None:
        """End an unused process, which stays listed until then."""
        if one in self._idle:
            self._idle.remove(one)
            self._ending.append(one)
        try:
            async with asyncio.timeout(_STOP_S):
                code = await one.child.end()
        except TimeoutError:
            one.child.kill()
            code = await one.child.end()
        for those in (self._used, self._stopping, self._ending):
            if one in those:
                those.remove(one)
        logger.info("scan process ended pid=%s exit_code=%s", one.child.pid, code)
