"""Calls of listeners, and the meaning of their answers."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from ternmq_client.interceptors import ConsumeEvent, ConsumeInterceptors, ConsumeOutcome
from ternmq_consumer.consume_status import ConsumeStatus, ListenerAnswer, ReconsumeLater
from ternmq_consumer.listener.consume_request import ConsumeRequest
from ternmq_consumer.listener.listener_call import (
    BatchListener,
    Interception,
    Listener,
    in_batches,
    one_by_one,
)
from ternmq_consumer.process_queue.queue_locks import Lease
from ternmq_model.errors import UsageError
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time
from tests.support.handed_out import World, of_offsets


def hand_over(
    listener: Listener,
    *,
    in_order: bool = False,
    works: list[ConsumeRequest] | None = None,
    interceptors: Sequence["Watch"] = (),
) -> ConsumeRequest:
    """Hand four messages to `listener` one by one; return what came of it."""

    async def main() -> ConsumeRequest:
        request = await World().request(4)
        if works is not None:
            works.append(request)
        call = one_by_one(
            listener, InlineBlocking(), in_order=in_order, interception=watched_by(interceptors)
        )
        await call(request)
        return request

    return run_in_virtual_time(main())


def hand_over_batch(
    listener: BatchListener, *, interceptors: Sequence["Watch"] = ()
) -> ConsumeRequest:
    """Hand four messages to `listener` at once; return what came of it."""

    async def main() -> ConsumeRequest:
        request = await World().request(4)
        await in_batches(listener, InlineBlocking(), interception=watched_by(interceptors))(request)
        return request

    return run_in_virtual_time(main())


class Watch:
    """An interceptor that keeps what it was told."""

    def __init__(self) -> None:
        self.before: list[ConsumeEvent] = []
        self.after: list[ConsumeEvent] = []

    def before_consume(self, event: ConsumeEvent) -> None:
        self.before.append(event)
        raise ValueError("a mistake in an interceptor")

    def after_consume(self, event: ConsumeEvent) -> None:
        self.after.append(event)


def watched_by(interceptors: Sequence[Watch]) -> Interception | None:
    if not interceptors:
        return None
    return Interception("g", VirtualClock(), ConsumeInterceptors(interceptors))


def as_is(listener: Any) -> Any:
    return listener


def awaited(listener: Any) -> Any:
    async def call(argument: Any) -> ListenerAnswer:
        await asyncio.sleep(0)
        return cast("ListenerAnswer", listener(argument))

    return call


def failed(request: ConsumeRequest) -> list[int]:
    return of_offsets(request.failed)


def unreached(request: ConsumeRequest) -> list[int]:
    return of_offsets(request.unreached)


@pytest.mark.parametrize("make", [as_is, awaited], ids=["plain", "async"])
class TestBothKinds:
    """Plain functions and `async def` mean the same by the same answer."""

    @pytest.mark.parametrize("answer", [None, True, ConsumeStatus.SUCCESS])
    def test_answers_other_than_no_finish_their_messages(self, make: Any, answer: Any) -> None:
        def listener(_: object) -> Any:
            return answer

        assert hand_over(make(listener)).unfinished == []
        assert hand_over_batch(make(listener)).unfinished == []

    @pytest.mark.parametrize("answer", [False, ConsumeStatus.RECONSUME_LATER, ReconsumeLater()])
    def test_negative_answer_leaves_its_messages_unfinished(
        self, make: Any, answer: ListenerAnswer
    ) -> None:
        def odd(message: StoredMessage) -> ListenerAnswer:
            return answer if message.queue_offset % 2 else None

        def batch(_: object) -> ListenerAnswer:
            return answer

        assert failed(hand_over(make(odd))) == [1, 3]
        assert failed(hand_over_batch(make(batch))) == [0, 1, 2, 3]

    def test_exception_is_a_failure_and_is_logged(self, make: Any) -> None:
        def fails(argument: Any) -> None:
            if isinstance(argument, list) or argument.queue_offset == 2:
                raise ValueError("two")

        request = hand_over(make(fails))
        assert failed(request) == [2]
        assert isinstance(request.error, ValueError)
        request = hand_over_batch(make(fails))
        assert failed(request) == [0, 1, 2, 3]
        assert isinstance(request.error, ValueError)

    def test_each_message_gets_its_own_delay(self, make: Any) -> None:
        answers: list[ListenerAnswer] = [ReconsumeLater(5), ConsumeStatus.DEAD_LETTER, False, None]

        def listener(message: StoredMessage) -> ListenerAnswer:
            return answers[message.queue_offset]

        request = hand_over(make(listener))
        assert failed(request) == [0, 1, 2]
        assert request.levels == [5, -1, 0]

    def test_batch_listener_may_return_how_many_succeeded(self, make: Any) -> None:
        def listener(_: object) -> ListenerAnswer:
            return ReconsumeLater(4, finished=3)

        request = hand_over_batch(make(listener))
        assert failed(request) == [3]
        assert request.levels == [4]

    def test_orderly_listener_gets_nothing_behind_a_failure(self, make: Any) -> None:
        seen: list[int] = []

        def listener(message: StoredMessage) -> ListenerAnswer:
            seen.append(message.queue_offset)
            return ReconsumeLater(suspend_s=7) if message.queue_offset == 1 else None

        request = hand_over(make(listener), in_order=True)
        assert (failed(request), unreached(request), request.suspend_s) == ([1], [2, 3], 7)
        assert seen == [0, 1]

    @pytest.mark.parametrize("reason", ["dropped", "given up", "lock not confirmed"])
    def test_listener_is_not_called_once_its_work_is_revoked(self, make: Any, reason: str) -> None:
        seen: list[int] = []
        works: list[ConsumeRequest] = []

        def listener(message: StoredMessage) -> bool:
            seen.append(message.queue_offset)
            if len(seen) == 2:
                request = works[0]
                match reason:
                    case "dropped":
                        request.in_hand.dropped = True
                    case "given up":
                        request.is_over = True
                    case _:
                        long_ago_ms = VirtualClock().monotonic_ms() - 8_001
                        request.assigned.lease = Lease(VirtualClock(), 1, long_ago_ms)
            return message.queue_offset != 0

        request = hand_over(make(listener), works=works)
        assert (failed(request), unreached(request)) == ([0], [2, 3])
        assert seen == [0, 1]

    def test_interceptors_see_each_call_and_its_result(self, make: Any) -> None:
        def listener(message: StoredMessage) -> ListenerAnswer:
            if message.queue_offset == 1:
                raise ValueError("one")
            return message.queue_offset != 2

        watch = Watch()
        request = hand_over(make(listener), interceptors=[watch])
        assert failed(request) == [1, 2]
        assert len(watch.before) == 4
        assert [event.outcome for event in watch.after] == [
            ConsumeOutcome.SUCCESS,
            ConsumeOutcome.EXCEPTION,
            ConsumeOutcome.FAILED,
            ConsumeOutcome.SUCCESS,
        ]
        assert [of_offsets(event.messages) for event in watch.after] == [[0], [1], [2], [3]]
        assert [of_offsets(event.unfinished) for event in watch.after] == [[], [1], [2], []]

    def test_interceptors_see_a_batch_as_one_call(self, make: Any) -> None:
        def listener(_: object) -> ListenerAnswer:
            return ReconsumeLater(finished=1)

        watch = Watch()
        hand_over_batch(make(listener), interceptors=[watch])
        (event,) = watch.after
        assert (event.group, len(event.messages)) == ("g", 4)
        assert of_offsets(event.unfinished) == [1, 2, 3]


def test_answer_out_of_range_is_a_failure() -> None:
    def listener(_: StoredMessage) -> ListenerAnswer:
        return ReconsumeLater(delay_level=19)

    request = hand_over(listener)
    assert failed(request) == [0, 1, 2, 3]
    assert isinstance(request.error, UsageError)


@pytest.mark.parametrize("make", [as_is, awaited], ids=["plain", "async"])
def test_other_answer_is_a_failure_that_says_what_to_return(make: Any) -> None:
    def listener(_: object) -> Any:
        return "done"

    request = hand_over(make(listener))
    assert failed(request) == [0, 1, 2, 3]
    assert "answered 'done': must be None" in str(request.error)
    assert failed(hand_over_batch(make(listener))) == [0, 1, 2, 3]


def test_plain_function_returning_a_coroutine_must_be_declared_async() -> None:
    async def real(message: StoredMessage) -> None:
        raise AssertionError("is never run")

    request = hand_over(lambda message: real(message))
    assert failed(request) == [0, 1, 2, 3]
    assert isinstance(request.error, UsageError)


def test_object_with_an_async_call_is_awaited() -> None:
    class Counting:
        def __init__(self) -> None:
            self.count = 0

        async def __call__(self, batch: Sequence[StoredMessage]) -> None:
            self.count += len(batch)

    listener = Counting()
    assert hand_over_batch(listener).unfinished == []
    assert listener.count == 4


def test_self_cancelling_listener_has_failed_and_the_worker_survives() -> None:
    async def listener(message: StoredMessage) -> None:
        raise asyncio.CancelledError

    request = hand_over(listener)
    assert failed(request) == [0, 1, 2, 3]
    assert isinstance(request.error, UsageError)
