"""Audit trail of a process: from events of security to lines in a file."""

import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import accumulate, islice, takewhile
from pathlib import Path
from typing import Final

from ternmq_model.clock import Clock
from ternmq_remoting.environment import Environment
from ternmq_remoting.security_event import SecurityEvent
from ternmq_runtime.blocking_pool import Blocking
from ternmq_runtime.service import Job, JobRunner
from ternmq_security.audit.audit_config import AuditConfig
from ternmq_security.audit.audit_lines import line_of, lost_line, shortened
from ternmq_security.audit.event_limit import WINDOW_MS, EventLimit
from ternmq_security.audit.trail_file import append

logger = logging.getLogger(__name__)

LINES_MAX: Final = 4096
"""Lines that wait for the disk; further ones are lost and counted."""

_WRITTEN_BYTES: Final = 32 << 10
"""Bytes of one write, unless a single line is longer: less than a file of the smallest size."""

_INTERVAL_S: Final = 1.0


class AuditTrail:
    """Lines of events on their way to a file. Owned by the loop of its process.

    A call never waits for the disk, and never fails because of it. While the disk refuses, lines
    wait for the next try, 4096 at most.

    Attributes:
        job: Writes lines, and those of repeated events.
        failures: Number of writes that the disk refused since the last one that succeeded.
    """

    def __init__(self, path: Path, config: AuditConfig, clock: Clock, blocking: Blocking) -> None:
        self._path = path
        self._config = config
        self._clock = clock
        self._blocking = blocking
        self._limit = EventLimit(clock.wall_ms())
        self._lines: deque[str] = deque()
        self._lost = 0
        self.failures = 0
        self.job: Final = Job(name="audit", interval_s=_INTERVAL_S, step=self._step)

    def note(self, event: SecurityEvent) -> None:
        """Take an event: its line is written soon. Never waits."""
        now_ms, event = self._clock.wall_ms(), shortened(event)
        line = line_of(event, now_ms)
        admitted = self._limit.admit(event, len(line), now_ms)
        if admitted is not None:
            self._put(line if admitted is event else line_of(admitted, now_ms))
            self.job.wake()

    async def begin(self) -> None:
        """Make the file, if the disk lets it; an error is logged."""
        await self._write("")

    async def close(self) -> None:
        """Write the lines that wait. What the disk refuses is lost, and logged."""
        self._put_repeats(self._clock.wall_ms() + WINDOW_MS)
        while self._lines and await self._write_next():
            pass
        if lost := len(self._lines) + self._lost:
            logger.error("lines of the audit trail lost file=%s lines=%s", self._path, lost)

    async def _step(self) -> bool:
        self._put_repeats(self._clock.wall_ms())
        return bool(self._lines) and await self._write_next() and bool(self._lines)

    def _put(self, line: str) -> None:
        if len(self._lines) < LINES_MAX:
            self._lines.append(line)
        else:
            self._lost += 1

    def _put_repeats(self, now_ms: int) -> None:
        for event, count, last_ms in self._limit.ended(now_ms):
            self._put(line_of(event, last_ms, count))

    async def _write_next(self) -> bool:
        """Write the oldest lines; return whether they are written."""
        sizes = accumulate(map(len, self._lines))
        number = max(1, sum(1 for _ in takewhile(_WRITTEN_BYTES.__ge__, sizes)))
        if not await self._write("".join(islice(self._lines, number))):
            return False
        for _ in range(number):
            self._lines.popleft()
        if self._lost:
            self._lines.append(lost_line(self._clock.wall_ms(), self._lost))
            self._lost = 0
        return True

    async def _write(self, lines: str) -> bool:
        config, data = self._config, lines.encode()
        try:
            await self._blocking.run(
                append, self._path, data, max_bytes=config.max_bytes, files=config.files
            )
        except OSError as error:
            if not self.failures:
                logger.error("audit trail not written file=%s err=%s", self._path, error)
            self.failures += 1
            return False
        if self.failures:
            logger.info("audit trail written again file=%s", self._path)
        self.failures = 0
        return True


@asynccontextmanager
async def audited(config: AuditConfig, env: Environment) -> AsyncGenerator[Environment]:
    """Yield the environment whose services report to the audit trail while the block runs.

    Leaving writes the lines that wait, so services must be closed before. Without a file in the
    settings the environment stays as it is.
    """
    if config.file is None:
        yield env
        return
    trail = AuditTrail(config.file, config, env.clock, env.blocking)
    await trail.begin()
    try:
        async with JobRunner(trail.job, timers=env.timers):
            yield replace(env, on_security_event=trail.note)
    finally:
        await trail.close()
