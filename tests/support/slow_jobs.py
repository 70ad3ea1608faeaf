"""Idle jobs that pause for long, for hours of virtual time."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from ternmq_runtime.timers import DueInS, LoopTimers, TimerHandle, Wait


@contextmanager
def slow_jobs(pause_s: float = 30.0) -> Generator[None]:
    """Let idle jobs of every service and client pause for at least `pause_s` in the block.

    For hours in which nothing but timers, messages and woken jobs matters: a cluster's idle jobs
    take a millisecond of CPU for each second. Longer pauses would lose registrations and locks.
    """
    call_later = LoopTimers.call_later

    def call_much_later(
        self: LoopTimers,
        delay_s: float,
        callback: Callable[..., object],
        *args: Any,
        wait: Wait = Wait.DUE,
        due_in_s: DueInS = None,
    ) -> TimerHandle:
        is_job = wait in (Wait.PERIODIC, Wait.RENEWAL, Wait.HEARTBEAT)
        return call_later(self, max(delay_s, pause_s) if is_job else delay_s, callback, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopTimers, "call_later", call_much_later)
        yield
