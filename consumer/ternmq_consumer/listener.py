"""Calling an application's listener, whatever its kind, and reading its answer.

A listener is a plain function or an `async def`, and takes one message or a batch. Plain ones run
in threads, so that they may block; the loop goes on meanwhile.
"""

import asyncio
import enum
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ternmq_consumer.process_queue import ProcessQueue
from ternmq_model.errors import UsageError
from ternmq_model.stored_message import StoredMessage
from ternmq_remoting.environment import Blocking

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ConsumeStatus(enum.Enum):
    """What a listener may say of what it was handed.

    Source: RocketMQ `ConsumeConcurrentlyStatus`.
    """

    SUCCESS = enum.auto()
    """It is finished."""

    RECONSUME_LATER = enum.auto()
    """Hand it to the listener again after a pause. Raising an exception says the same."""


Answer: TypeAlias = ConsumeStatus | bool | None
"""None, True and SUCCESS: finished. False and RECONSUME_LATER: again later."""

Listener: TypeAlias = Callable[[StoredMessage], Answer | Awaitable[Answer]]
BatchListener: TypeAlias = Callable[[Sequence[StoredMessage]], Answer | Awaitable[Answer]]


class Outcome(NamedTuple):
    """What came of handing messages to a listener."""

    unfinished: list[StoredMessage]
    """By offset: those that failed, and those never handed over since the queue was dropped."""

    error: Exception | None = None
    """The first thing it raised."""


CallListener: TypeAlias = Callable[
    [list[StoredMessage], ProcessQueue[StoredMessage]], Awaitable[Outcome]
]
"""Hands messages of a queue to a listener and returns what came of it. Raises nothing that the
listener raised, unless it is no `Exception`."""


def wants_again(answer: object) -> bool:
    """Tell whether a listener's answer asks for the messages once more."""
    return answer is False or answer is ConsumeStatus.RECONSUME_LATER


def one_by_one(listener: Listener, blocking: Blocking, *, in_order: bool) -> CallListener:
    """Return what hands messages to `listener` each alone.

    Args:
        listener: The application's.
        blocking: Runs it when it is a plain function.
        in_order: Hand nothing over that lies behind a failed message.
    """
    if _is_async(listener):

        async def call_async(
            messages: list[StoredMessage], queue: ProcessQueue[StoredMessage]
        ) -> Outcome:
            unfinished: list[StoredMessage] = []
            failure: Exception | None = None
            for place, message in enumerate(messages):
                if queue.dropped:
                    return Outcome([*unfinished, *messages[place:]], failure)
                answer, error = await _await_answer(listener, message)
                if error is not None or wants_again(answer):
                    failure = failure or error
                    if in_order:
                        return Outcome(messages[place:], failure)
                    unfinished.append(message)
            return Outcome(unfinished, failure)

        return call_async

    def call_plain(messages: list[StoredMessage], queue: ProcessQueue[StoredMessage]) -> Outcome:
        unfinished: list[StoredMessage] = []
        failure: Exception | None = None
        for place, message in enumerate(messages):
            if queue.dropped:
                return Outcome([*unfinished, *messages[place:]], failure)
            answer, error = _get_answer(listener, message)
            if error is not None or wants_again(answer):
                failure = failure or error
                if in_order:
                    return Outcome(messages[place:], failure)
                unfinished.append(message)
        return Outcome(unfinished, failure)

    return lambda messages, queue: blocking.run(call_plain, messages, queue)


def in_batches(listener: BatchListener, blocking: Blocking) -> CallListener:
    """Return what hands messages to `listener` all at once; its answer holds for all of them."""
    if _is_async(listener):

        async def call_async(
            messages: list[StoredMessage], queue: ProcessQueue[StoredMessage]
        ) -> Outcome:
            if queue.dropped:
                return Outcome(messages)
            answer, error = await _await_answer(listener, messages)
            return Outcome(messages if error or wants_again(answer) else [], error)

        return call_async

    def call_plain(messages: list[StoredMessage], queue: ProcessQueue[StoredMessage]) -> Outcome:
        if queue.dropped:
            return Outcome(messages)
        answer, error = _get_answer(listener, messages)
        return Outcome(messages if error or wants_again(answer) else [], error)

    return lambda messages, queue: blocking.run(call_plain, messages, queue)


def _is_async(listener: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004 - an object whose call is `async def`
    )


async def _await_answer(
    listener: Callable[[T], Any], argument: T
) -> tuple[object, Exception | None]:
    try:
        return await listener(argument), None
    except Exception as error:
        return None, error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # the consumer is being closed
        return None, UsageError("the listener was cancelled from its inside")


def _get_answer(listener: Callable[[T], Any], argument: T) -> tuple[object, Exception | None]:
    try:
        answer = listener(argument)
    except Exception as error:
        return None, error
    if inspect.iscoroutine(answer):
        answer.close()
        return None, UsageError(
            f"listener {listener!r} returned a coroutine: declare it with `async def`"
        )
    return answer, None
