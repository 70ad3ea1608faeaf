"""How listeners are called, and what their answers mean."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from ternmq_consumer.listener import (
    Answer,
    BatchListener,
    ConsumeStatus,
    Listener,
    Outcome,
    in_batches,
    one_by_one,
)
from ternmq_consumer.process_queue import ProcessQueue
from ternmq_model.errors import UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.stored_message import StoredMessage
from tests.support.virtual_time import InlineBlocking

NAMES: list[object] = ["zero", "one", "two", "three"]
MESSAGES = cast("list[StoredMessage]", NAMES)


def messages(*names: str) -> list[StoredMessage]:
    """Return messages for code that only passes them on."""
    return cast("list[StoredMessage]", list(names))


def hand_over(
    listener: Listener,
    *,
    in_order: bool = False,
    queue: ProcessQueue[StoredMessage] | None = None,
) -> Outcome:
    async def main() -> Outcome:
        call = one_by_one(listener, InlineBlocking(), in_order=in_order)
        return await call(MESSAGES, queue or ProcessQueue[StoredMessage](QueueOffset(0)))

    return asyncio.run(main())


def hand_over_batch(listener: BatchListener) -> Outcome:
    async def main() -> Outcome:
        call = in_batches(listener, InlineBlocking())
        return await call(MESSAGES, ProcessQueue[StoredMessage](QueueOffset(0)))

    return asyncio.run(main())


def as_is(listener: Any) -> Any:
    return listener


def awaited(listener: Any) -> Any:
    async def call(argument: Any) -> Answer:
        await asyncio.sleep(0)
        return cast("Answer", listener(argument))

    return call


@pytest.mark.parametrize("make", [as_is, awaited], ids=["plain", "async"])
class TestBothKinds:
    """Plain functions and `async def` mean the same by the same answer."""

    @pytest.mark.parametrize("answer", [None, True, ConsumeStatus.SUCCESS])
    def test_an_answer_that_is_not_no_finishes(self, make: Any, answer: Answer) -> None:
        assert hand_over(make(lambda message: answer)) == Outcome([])  # pyright: ignore[reportUnknownLambdaType]
        assert hand_over_batch(make(lambda batch: answer)) == Outcome([])  # pyright: ignore[reportUnknownLambdaType]

    @pytest.mark.parametrize("answer", [False, ConsumeStatus.RECONSUME_LATER])
    def test_an_answer_that_is_no_leaves_what_it_is_about(self, make: Any, answer: Answer) -> None:
        def odd(message: object) -> Answer:
            return answer if message in ("one", "three") else None

        assert hand_over(make(odd)).unfinished == messages("one", "three")
        assert hand_over_batch(make(lambda batch: answer)).unfinished == MESSAGES  # pyright: ignore[reportUnknownLambdaType]

    def test_an_exception_is_no_and_is_told(self, make: Any) -> None:
        def fails(argument: object) -> None:
            if argument in ("two", MESSAGES):
                raise ValueError("two")

        outcome = hand_over(make(fails))
        assert outcome.unfinished == messages("two")
        assert isinstance(outcome.error, ValueError)
        outcome = hand_over_batch(make(fails))
        assert outcome.unfinished == MESSAGES
        assert isinstance(outcome.error, ValueError)

    def test_in_order_nothing_behind_a_failure_is_handed_over(self, make: Any) -> None:
        seen: list[object] = []

        def listener(message: object) -> bool:
            seen.append(message)
            return message != "one"

        assert hand_over(make(listener), in_order=True).unfinished == MESSAGES[1:]
        assert seen == MESSAGES[:2]

    def test_nothing_of_a_dropped_queue_is_handed_over(self, make: Any) -> None:
        queue = ProcessQueue[StoredMessage](QueueOffset(0))
        seen: list[object] = []

        def listener(message: object) -> bool:
            seen.append(message)
            queue.dropped = len(seen) == 2
            return message != "zero"

        assert hand_over(make(listener), queue=queue).unfinished == messages("zero", "two", "three")
        assert seen == MESSAGES[:2]


def test_a_plain_function_that_returns_a_coroutine_is_told_to_be_declared_async() -> None:
    async def real(message: StoredMessage) -> None:
        raise AssertionError("is never run")

    outcome = hand_over(lambda message: real(message))
    assert outcome.unfinished == MESSAGES
    assert isinstance(outcome.error, UsageError)


def test_an_object_with_an_async_call_is_awaited() -> None:
    class Counting:
        def __init__(self) -> None:
            self.count = 0

        async def __call__(self, batch: Sequence[StoredMessage]) -> None:
            self.count += len(batch)

    listener = Counting()
    assert hand_over_batch(listener) == Outcome([])
    assert listener.count == 4


def test_a_listener_that_cancels_itself_has_failed_and_the_worker_lives() -> None:
    async def listener(message: StoredMessage) -> None:
        raise asyncio.CancelledError

    outcome = hand_over(listener)
    assert outcome.unfinished == MESSAGES
    assert isinstance(outcome.error, UsageError)
