"""Calling an application's listener, whatever its kind, and reading its answer.

A listener is a plain function or an `async def`, and takes one message or a batch. Plain ones run
in threads, so that they may block; the loop goes on meanwhile.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ternmq_client.interceptors import ConsumeEvent, ConsumeInterceptors, ConsumeOutcome
from ternmq_consumer.consume_status import LATER, ListenerAnswer, reconsume_later_of
from ternmq_consumer.listener.consume_request import Work
from ternmq_model.arguments import is_async
from ternmq_model.clock import Clock
from ternmq_model.errors import UsageError
from ternmq_model.stored_message import StoredMessage
from ternmq_remoting.environment import Blocking

T = TypeVar("T")

Listener: TypeAlias = Callable[[StoredMessage], ListenerAnswer | Awaitable[ListenerAnswer]]
BatchListener: TypeAlias = Callable[
    [Sequence[StoredMessage]], ListenerAnswer | Awaitable[ListenerAnswer]
]

CallListener: TypeAlias = Callable[[Work], Awaitable[None]]
"""Hands a hand-out's messages to a listener and notes in it what came of them. Raises nothing that
the listener raised, unless it is no `Exception`."""


class Said(NamedTuple):
    """How one call of a listener ended."""

    answer: object
    error: Exception | None = None


_NOT_CALLED = Said(None, UsageError("the listener was not called"))
"""Told apart by identity."""


@dataclass(frozen=True, slots=True)
class Interception:
    """What stands between a consumer and its listener."""

    group: str
    clock: Clock
    interceptors: ConsumeInterceptors


def one_by_one(
    listener: Listener,
    blocking: Blocking,
    *,
    in_order: bool,
    interception: Interception | None = None,
) -> CallListener:
    """Return what hands messages to `listener` each alone.

    Args:
        listener: The application's.
        blocking: Runs it when it is a plain function: a hand-out in one go, or message by message
            when there is an interception.
        in_order: Hand nothing over that lies behind a failed message.
        interception: Told of every call; None = nobody is.
    """
    caller = _caller(listener, blocking)
    if interception is None and not is_async(listener):
        return lambda work: blocking.run(_call_plain, listener, work, in_order=in_order)

    async def call(work: Work) -> None:
        messages = work.handout.messages
        for place, message in enumerate(messages):
            work.place = place
            if not work.may_go_on:
                work.left = messages[place:]
                return
            if interception is None:
                said = await _await_answer(listener, message)
            else:
                said = await _intercepted(caller, message, [message], work, interception)
                if said is _NOT_CALLED:
                    work.left = messages[place:]
                    return
            if (said.answer is None and said.error is None) or _take_answer(work, message, said):
                continue
            if in_order:
                work.left = messages[place + 1 :]
                return

    return call


def in_batches(
    listener: BatchListener, blocking: Blocking, *, interception: Interception | None = None
) -> CallListener:
    """Return what hands messages to `listener` all at once; its answer holds for all of them, or
    for those after the first ones that it says went well.

    Args:
        listener: The application's.
        blocking: Runs it when it is a plain function.
        interception: Told of every call; None = nobody is.
    """
    caller = _caller(listener, blocking)

    async def call(work: Work) -> None:
        messages = work.handout.messages
        work.is_batch = True
        if interception is None:
            said = await caller(messages, work)
        elif work.may_go_on:
            said = await _intercepted(caller, messages, messages, work, interception)
        else:
            said = _NOT_CALLED
        if said is _NOT_CALLED:
            work.left = messages
        else:
            _take_batch_answer(work, said)

    return call


def _call_plain(listener: Listener, work: Work, *, in_order: bool) -> None:
    """Hand the messages of `work` to a plain function. Runs in a thread."""
    messages = work.handout.messages
    for place, message in enumerate(messages):
        work.place = place
        if not work.may_go_on:
            work.left = messages[place:]
            return
        said = _get_answer(listener, message)
        if (said.answer is None and said.error is None) or _take_answer(work, message, said):
            continue
        if in_order:
            work.left = messages[place + 1 :]
            return


def _take_answer(work: Work, message: StoredMessage, said: Said) -> bool:
    """Note what a listener said of one message; return whether it is finished."""
    later = LATER if said.error is not None else reconsume_later_of(said.answer)
    if later is None:
        return True
    work.error = work.error or said.error
    work.suspend_s = later.suspend_s
    work.fail(message, later.delay_level)
    return False


def _take_batch_answer(work: Work, said: Said) -> None:
    """Note what a listener said of all messages of `work`."""
    later = LATER if said.error is not None else reconsume_later_of(said.answer)
    if later is None:
        return
    work.error = said.error
    work.suspend_s = later.suspend_s
    for message in work.handout.messages[later.finished :]:
        work.fail(message, later.delay_level)


def _caller(
    listener: Callable[[T], Any], blocking: Blocking
) -> Callable[[T, Work], Awaitable[Said]]:
    """Return what calls `listener` unless that may not be any more: `_NOT_CALLED` then."""
    if not is_async(listener):
        return lambda argument, work: blocking.run(_guarded, listener, argument, work)

    async def call(argument: T, work: Work) -> Said:
        return await _await_answer(listener, argument) if work.may_go_on else _NOT_CALLED

    return call


async def _intercepted(
    caller: Callable[[T, Work], Awaitable[Said]],
    argument: T,
    messages: Sequence[StoredMessage],
    work: Work,
    interception: Interception,
) -> Said:
    """Call a listener with `argument`, which is `messages`, and tell the interceptors."""
    clock = interception.clock
    event = ConsumeEvent(
        group=interception.group,
        queue=work.assigned.queue,
        messages=messages,
        began_at_ms=clock.wall_ms(),
    )
    interception.interceptors.before(event)
    begin_ms = clock.monotonic_ms()
    said = await caller(argument, work)
    took_ms = clock.monotonic_ms() - begin_ms
    later = LATER if said.error is not None else reconsume_later_of(said.answer)
    if work.is_over:
        outcome = ConsumeOutcome.TIME_OUT
    elif said.error is not None and said is not _NOT_CALLED:
        outcome = ConsumeOutcome.EXCEPTION
    else:
        outcome = ConsumeOutcome.SUCCESS if later is None else ConsumeOutcome.FAILED
    interception.interceptors.after(
        replace(
            event,
            took_ms=took_ms,
            outcome=outcome,
            error=None if said is _NOT_CALLED else said.error,
            unfinished=() if later is None else messages[later.finished :],
        )
    )
    return said


async def _await_answer(listener: Callable[[T], Any], argument: T) -> Said:
    try:
        return _said(await listener(argument))
    except Exception as error:
        return Said(None, error)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # the consumer is being closed
        return Said(None, UsageError("the listener was cancelled from its inside"))


def _guarded(listener: Callable[[T], Any], argument: T, work: Work) -> Said:
    """Call a plain listener unless that may not be any more. Runs in a thread, maybe later."""
    return _get_answer(listener, argument) if work.may_go_on else _NOT_CALLED


def _get_answer(listener: Callable[[T], Any], argument: T) -> Said:
    try:
        return _said(listener(argument))
    except Exception as error:
        return Said(None, error)


def _said(answer: object) -> Said:
    """Return what a listener answered, which `reconsume_later_of` can read.

    Raises:
        UsageError: It is no answer.
    """
    if inspect.iscoroutine(answer):
        answer.close()
    if inspect.isawaitable(answer):
        kind = type(answer).__name__
        raise UsageError(f"the listener returned a {kind}: declare it with `async def`, and await")
    if answer is not None:
        reconsume_later_of(answer)
    return Said(answer)
