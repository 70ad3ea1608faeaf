"""Calls of an application's listener of any kind, and their answers.

A listener is a plain function or an `async def`, and takes one message or a batch. Plain functions
run in threads, so that they may block.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

from ternmq_client.interceptors import ConsumeEvent, ConsumeInterceptors, ConsumeOutcome
from ternmq_consumer.consume_status import LATER, ListenerAnswer, reconsume_later_of
from ternmq_consumer.listener.consume_request import ConsumeRequest
from ternmq_model.arguments import is_async
from ternmq_model.clock import Clock
from ternmq_model.errors import UsageError
from ternmq_model.stored_message import StoredMessage
from ternmq_remoting.environment import Blocking

if TYPE_CHECKING:
    import pyarrow as pa

    from ternmq_consumer.process_queue.message_rows import HandoutRows

T = TypeVar("T")

Listener: TypeAlias = Callable[[StoredMessage], ListenerAnswer | Awaitable[ListenerAnswer]]
BatchListener: TypeAlias = Callable[
    [Sequence[StoredMessage]], ListenerAnswer | Awaitable[ListenerAnswer]
]

ColumnsListener: TypeAlias = Callable[
    ["pa.RecordBatch"], ListenerAnswer | Awaitable[ListenerAnswer]
]

CallListener: TypeAlias = Callable[[ConsumeRequest], Awaitable[None]]
"""Function that passes the messages of a request to a listener and records their outcome in it. It
raises no `Exception` of the listener."""


class ListenerResult(NamedTuple):
    """Result of one call of a listener."""

    answer: object
    error: Exception | None = None


_NOT_CALLED = ListenerResult(None, UsageError("the listener was not called"))
"""Result of a call that was not made. It is compared by identity."""


@dataclass(frozen=True, slots=True)
class Interception:
    """Interceptors between a consumer and its listener."""

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
    """Return the call of a listener that gets messages one by one.

    Args:
        listener: Listener of the application.
        blocking: Pool of threads for a listener that is a plain function. A thread handles a whole
            request, or one message if there is an interception.
        in_order: True = messages behind a failed one are not passed on.
        interception: Interceptors of the call; None = without.
    """
    caller = _caller(listener, blocking)
    if interception is None and not is_async(listener):
        return lambda request: blocking.run(_call_plain, listener, request, in_order=in_order)

    async def call(request: ConsumeRequest) -> None:
        messages = request.handout.messages
        for index, message in enumerate(messages):
            request.index = index
            if not request.may_go_on:
                request.unreached = messages[index:]
                return
            if interception is None:
                result = await _await_answer(listener, message)
            else:
                result = await _intercepted(caller, message, [message], request, interception)
                if result is _NOT_CALLED:
                    request.unreached = messages[index:]
                    return
            if (result.answer is None and result.error is None) or _take_answer(
                request, message, result
            ):
                continue
            if in_order:
                request.unreached = messages[index + 1 :]
                return

    return call


def in_batches(
    listener: BatchListener, blocking: Blocking, *, interception: Interception | None = None
) -> CallListener:
    """Return the call of a batch listener, which gets all messages of a hand-out at once.

    The answer counts for all messages, or for those behind the first `finished` ones.

    Args:
        listener: Listener of the application.
        blocking: Pool of threads for a listener that is a plain function.
        interception: Interceptors of the call; None = without.
    """
    caller = _caller(listener, blocking)

    async def call(request: ConsumeRequest) -> None:
        messages = request.handout.messages
        request.is_batch = True
        if interception is None:
            result = await caller(messages, request)
        elif request.may_go_on:
            result = await _intercepted(caller, messages, messages, request, interception)
        else:
            result = _NOT_CALLED
        if result is _NOT_CALLED:
            request.unreached = messages
        else:
            _take_batch_answer(request, messages, result)

    return call


def in_columns(
    listener: ColumnsListener,
    blocking: Blocking,
    *,
    in_order: bool,
    interception: Interception | None = None,
    bytes_max: int | None = None,
) -> CallListener:
    """Return the call of a columns listener, which gets the messages of a hand-out as Arrow rows.

    Long hand-outs reach the listener in several calls, one after the other: the offsets of an Arrow
    array have 31 bits. An answer counts for the messages of its call, as for a batch listener.

    Args:
        listener: Listener of the application.
        blocking: Pool of threads for a listener that is a plain function.
        in_order: True = messages behind a failed call are not passed on.
        interception: Interceptors of the calls; None = without.
        bytes_max: Limit of records and decompressed bodies of a call; None = that of `poll`.
    """
    from ternmq_consumer.process_queue.message_rows import HandoutRows

    caller = _caller(_on_rows(listener), blocking)

    async def pass_rows(rows: HandoutRows, request: ConsumeRequest) -> ListenerResult:
        if interception is None:
            return await caller(rows, request)
        if not request.may_go_on:
            return _NOT_CALLED
        with suppress(Exception):  # the call raises it again
            if is_async(listener):
                rows.read()
            else:
                await blocking.run(rows.read)
        return await _intercepted(caller, rows, rows.messages, request, interception)

    async def call(request: ConsumeRequest) -> None:
        rest = request.handout.messages
        request.is_batch = True
        while rest:
            rows = HandoutRows(rest, bytes_max)
            result = await pass_rows(rows, request)
            if result is _NOT_CALLED:
                request.unreached = rest
                return
            is_finished = _take_batch_answer(request, rows.messages, result)
            rest = rest[len(rows.messages) :]
            if in_order and not is_finished:
                request.unreached = rest
                return
            request.index += len(rows.messages)

    return call


def _on_rows(listener: ColumnsListener) -> "Callable[[HandoutRows], Any]":
    """Return a listener of the same kind that takes rows which are not read."""
    if not is_async(listener):
        return lambda rows: listener(rows.read())

    async def call(rows: "HandoutRows") -> ListenerAnswer:
        return await cast("Awaitable[ListenerAnswer]", listener(rows.read()))

    return call


def _call_plain(listener: Listener, request: ConsumeRequest, *, in_order: bool) -> None:
    """Pass the messages of `request` to a plain function. Runs in a thread."""
    messages = request.handout.messages
    for index, message in enumerate(messages):
        request.index = index
        if not request.may_go_on:
            request.unreached = messages[index:]
            return
        result = _get_answer(listener, message)
        if (result.answer is None and result.error is None) or _take_answer(
            request, message, result
        ):
            continue
        if in_order:
            request.unreached = messages[index + 1 :]
            return


def _take_answer(request: ConsumeRequest, message: StoredMessage, result: ListenerResult) -> bool:
    """Record the listener's answer for one message. Return whether the message is finished."""
    later = LATER if result.error is not None else reconsume_later_of(result.answer)
    if later is None:
        return True
    request.error = request.error or result.error
    request.suspend_s = later.suspend_s
    request.fail(message, later.delay_level)
    return False


def _take_batch_answer(
    request: ConsumeRequest, messages: Sequence[StoredMessage], result: ListenerResult
) -> bool:
    """Record the listener's answer for `messages`. Return whether all of them are finished."""
    later = LATER if result.error is not None else reconsume_later_of(result.answer)
    if later is None:
        return True
    request.error = request.error or result.error
    request.suspend_s = later.suspend_s
    for message in messages[later.finished :]:
        request.fail(message, later.delay_level)
    return later.finished >= len(messages)


def _caller(
    listener: Callable[[T], Any], blocking: Blocking
) -> Callable[[T, ConsumeRequest], Awaitable[ListenerResult]]:
    """Return a call of `listener` that returns `_NOT_CALLED` if it may not go on."""
    if not is_async(listener):
        return lambda argument, request: blocking.run(_guarded, listener, argument, request)

    async def call(argument: T, request: ConsumeRequest) -> ListenerResult:
        return await _await_answer(listener, argument) if request.may_go_on else _NOT_CALLED

    return call


async def _intercepted(
    caller: Callable[[T, ConsumeRequest], Awaitable[ListenerResult]],
    argument: T,
    messages: Sequence[StoredMessage],
    request: ConsumeRequest,
    interception: Interception,
) -> ListenerResult:
    """Call a listener with `argument`, which has `messages`, and call the interceptors."""
    clock = interception.clock
    event = ConsumeEvent(
        group=interception.group,
        queue=request.assigned.queue,
        messages=messages,
        began_at_ms=clock.wall_ms(),
    )
    interception.interceptors.before(event)
    begin_ms = clock.monotonic_ms()
    result = await caller(argument, request)
    took_ms = clock.monotonic_ms() - begin_ms
    later = LATER if result.error is not None else reconsume_later_of(result.answer)
    if request.is_over:
        outcome = ConsumeOutcome.TIME_OUT
    elif result.error is not None and result is not _NOT_CALLED:
        outcome = ConsumeOutcome.EXCEPTION
    else:
        outcome = ConsumeOutcome.SUCCESS if later is None else ConsumeOutcome.FAILED
    interception.interceptors.after(
        replace(
            event,
            took_ms=took_ms,
            outcome=outcome,
            error=None if result is _NOT_CALLED else result.error,
            unfinished=() if later is None else messages[later.finished :],
        )
    )
    return result


async def _await_answer(listener: Callable[[T], Any], argument: T) -> ListenerResult:
    try:
        return _result_of(await listener(argument))
    except Exception as error:
        return ListenerResult(None, error)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # the consumer is being closed
        return ListenerResult(None, UsageError("the listener was cancelled from its inside"))


def _guarded(listener: Callable[[T], Any], argument: T, request: ConsumeRequest) -> ListenerResult:
    """Call a plain listener if the request may still go on. Runs in a thread, maybe later."""
    return _get_answer(listener, argument) if request.may_go_on else _NOT_CALLED


def _get_answer(listener: Callable[[T], Any], argument: T) -> ListenerResult:
    try:
        return _result_of(listener(argument))
    except Exception as error:
        return ListenerResult(None, error)


def _result_of(answer: object) -> ListenerResult:
    """Return the checked answer of a listener.

    Raises:
        UsageError: The value is no answer.
    """
    if inspect.iscoroutine(answer):
        answer.close()
    if inspect.isawaitable(answer):
        kind = type(answer).__name__
        raise UsageError(f"the listener returned a {kind}: declare it with `async def`, and await")
    if answer is not None:
        reconsume_later_of(answer)
    return ListenerResult(answer)
