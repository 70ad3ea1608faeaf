"""Interruption of a job by Ctrl-C or SIGTERM, in order or at once."""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

OnSignal = Callable[[int, FrameType | None], None]


@dataclass(slots=True)
class Interruption:
    """Request to end the job: Ctrl-C or SIGTERM."""

    is_wanted: bool = False


@contextmanager
def interruptions() -> Generator[Interruption]:
    """Record the first Ctrl-C or SIGTERM inside the block; a second one ends the job at once.

    A thread other than the main one receives no signals.
    """
    noted = Interruption()

    def note(number: int, frame: FrameType | None) -> None:
        if noted.is_wanted:
            _end(number, frame)
        noted.is_wanted = True

    with _signals_to(note):
        yield noted


@contextmanager
def ended_by_signals() -> Generator[None]:
    """Raise KeyboardInterrupt at the first Ctrl-C or SIGTERM inside the block.

    The block can still clean up. In a thread other than the main one nothing changes.
    """
    with _signals_to(_end):
        yield


@contextmanager
def signals_put_off() -> Generator[None]:
    """Postpone Ctrl-C and SIGTERM: KeyboardInterrupt is raised at the end of the block.

    Use it for short steps that must not be interrupted half-way.
    """
    noted = Interruption()

    def note(_: int, __: FrameType | None) -> None:
        noted.is_wanted = True

    with _signals_to(note):
        yield
    if noted.is_wanted:
        raise KeyboardInterrupt


def _end(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _signals_to(handler: OnSignal) -> Generator[None]:
    before: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, handler)
    except ValueError:
        before.clear()
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
