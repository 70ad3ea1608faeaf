"""Which failures are waited for, how long, and what is told meanwhile."""

import asyncio
import logging
from random import Random
from typing import cast

import pytest

from ternmq_client.retry_timeout import RetryTimeout
from ternmq_model.errors import (
    ConfigError,
    RefusedError,
    TernError,
    TopicNotFound,
    Unreachable,
    UsageError,
    refusal,
)
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Network
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time

AWAY = Unreachable("broker a: 127.0.0.1:1: refused")
UNKNOWN = refusal(ResponseCode.TOPIC_NOT_EXIST, "no broker has it")
BUSY = refusal(ResponseCode.SYSTEM_BUSY, "later", "broker a")


def environment() -> Environment:
    return Environment(
        clock=VirtualClock(),
        network=cast("Network", None),
        random=Random(1),
        blocking=InlineBlocking(),
    )


def lasts(*errors: TernError, timeout_s: float = 20, was_there: bool = False) -> tuple[float, str]:
    """Return after how many seconds the last of `errors`, said again and again, is the end."""

    async def main() -> tuple[float, str]:
        env = environment()
        retry_timeout = RetryTimeout(env, timeout_s, was_there=was_there)
        begun_ms, left = env.clock.monotonic_ms(), list(errors)
        while True:
            error = left.pop(0) if len(left) > 1 else left[0]
            try:
                await retry_timeout.pause(error)
            except TernError as raised:
                end = raised
                break
        assert type(end) is type(error)
        return (env.clock.monotonic_ms() - begun_ms) / 1000, str(end)

    return run_in_virtual_time(main())


@pytest.mark.parametrize("error", [AWAY, BUSY])
def test_absence_lasts_as_long_as_is_allowed_and_the_error_says_so(error: TernError) -> None:
    assert lasts(error) == (20, f"{error}; for 20 s (retryTimeout)")
    assert lasts(error, timeout_s=0) == (0, str(error))


@pytest.mark.parametrize(
    "error",
    [UNKNOWN, UsageError("no"), ConfigError("a", 1, "no"),
     refusal(ResponseCode.NO_PERMISSION, "may not be read")],
)  # fmt: skip
def test_failure_that_waiting_does_not_mend_is_the_end_at_once(error: TernError) -> None:
    assert lasts(error) == (0, str(error))


def test_denial_may_pass_for_a_moment_after_an_outage_or_of_what_was_there() -> None:
    assert lasts(UNKNOWN, was_there=True) == (5, str(UNKNOWN))
    outage_s, _ = lasts(*[AWAY] * 3, UsageError("no"))
    assert outage_s > 0
    assert lasts(*[AWAY] * 3, UNKNOWN) == (outage_s + 5, str(UNKNOWN))
    assert lasts(UNKNOWN, timeout_s=2, was_there=True) == (2, str(UNKNOWN))


def test_attempt_that_hangs_is_part_of_the_time() -> None:
    async def main() -> None:
        retry_timeout = RetryTimeout(environment(), 10)
        await asyncio.sleep(8)
        await retry_timeout.pause(AWAY)
        await asyncio.sleep(2)
        with pytest.raises(Unreachable, match=r"for 1[0-2] s"):
            await retry_timeout.pause(AWAY)

    run_in_virtual_time(main())


def test_error_that_lasted_keeps_what_it_knows() -> None:
    async def main() -> None:
        env = environment()
        retry_timeout = RetryTimeout(env, 1)
        busy = refusal(ResponseCode.SYSTEM_BUSY, "later", "broker a", may_have_happened=True)

        async def wait_in_vain() -> None:
            while True:
                await retry_timeout.pause(busy)

        with pytest.raises(RefusedError, match="for 1 s") as caught:
            await wait_in_vain()
        assert (caught.value.code, caught.value.peer) == (busy.code, "broker a")
        assert caught.value.may_have_happened
        assert not isinstance(caught.value, TopicNotFound)

    run_in_virtual_time(main())


def test_progress_begins_the_time_anew() -> None:
    async def main() -> None:
        retry_timeout = RetryTimeout(environment(), 5)
        for _ in range(4):
            await asyncio.sleep(4)
            await retry_timeout.pause(AWAY)
            retry_timeout.got_further()

    run_in_virtual_time(main())


def test_log_says_what_is_waited_for_and_how_long_still_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "ternmq_client.retry_timeout"):
        lasts(AWAY, timeout_s=60)
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == f"waiting for the cluster left_s=60 option=retryTimeout reason={AWAY}"
    assert 5 <= len(told) <= 6
