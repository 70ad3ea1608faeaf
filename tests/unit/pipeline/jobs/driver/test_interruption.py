import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from ternmq_pipeline.jobs.driver.interruption import (
    ended_by_signals,
    interruptions,
    signals_put_off,
)

SIGNALS = [signal.SIGINT, signal.SIGTERM]
BLOCKS: list[Callable[[], AbstractContextManager[Any]]] = [
    interruptions,
    ended_by_signals,
    signals_put_off,
]


@pytest.mark.parametrize("number", SIGNALS)
def test_first_signal_is_noted_and_a_second_one_ends_the_job(number: signal.Signals) -> None:
    with interruptions() as noted:
        assert [noted.is_wanted] == [False]
        os.kill(os.getpid(), number)
        assert noted.is_wanted
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_first_signal_ends_an_interruptible_block(
    number: signal.Signals,
) -> None:
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_deferred_signals_end_the_code_behind_the_block(number: signal.Signals) -> None:
    done: list[str] = []

    def job() -> None:
        with signals_put_off():
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            done.append("block")
        done.append("what comes behind")

    with pytest.raises(KeyboardInterrupt):
        job()
    assert done == ["block"]


@pytest.mark.parametrize("block", BLOCKS)
def test_signal_handlers_are_restored_afterwards(
    block: Callable[[], AbstractContextManager[Any]],
) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with block():
        assert before != [signal.getsignal(number) for number in SIGNALS]
    assert before == [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("block", BLOCKS)
def test_signal_handlers_stay_as_they_are_in_another_thread(
    block: Callable[[], AbstractContextManager[Any]],
) -> None:
    seen: list[Any] = []

    def look() -> None:
        with block():
            seen.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(number) for number in SIGNALS]
