"""Interception of sends: a producer's interceptors and spans, around each of its verbs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ternmq_client.interceptors import SendEvent, SendInterceptor, call_safely
from ternmq_client.telemetry.send_spans import EndSpans, SendSpans
from ternmq_model.clock import Clock
from ternmq_model.errors import SendVetoed, TernError
from ternmq_model.message import Message, SendManyFailed, SendResult, SystemMessage
from ternmq_producer.batch.bulk import SendResults

if TYPE_CHECKING:
    import asyncio

OnAnswer = Callable[[SendResult | TernError | None], None]
"""Reports the outcome of one message; None = its sender was cancelled."""


class SendInterception:
    """Interceptors and spans of one producer, as its sends call them.

    Args:
        group: Name of the producer group.
        interceptors: Interceptors in the order in which they are called before a send.
        clock: Clock of the times in events.
        spans: Spans of sampled messages, which begin after the interceptors; None = no telemetry.

    Attributes:
        has_interceptors: False = only spans.
        takes: Function that returns whether the next message goes through `before_one`.
    """

    def __init__(
        self,
        group: str,
        interceptors: Sequence[SendInterceptor],
        clock: Clock,
        spans: SendSpans | None = None,
    ) -> None:
        self._group = group
        self._interceptors = interceptors
        self._clock = clock
        self._spans = spans
        self.has_interceptors = bool(interceptors)
        self.takes = _always if spans is None or interceptors else spans.takes

    def before_one(self, message: Message) -> tuple[Message, OnAnswer]:
        """Return what `before` returns, for a message that travels alone and that `takes` chose."""
        if self._spans is None:
            return self.before(message)
        if not self.has_interceptors:
            return self._spans.begin(message)
        message, after = self.before(message)
        if not self._spans.takes():
            return message, after
        message, end = self._spans.begin(message)

        def both(answer: SendResult | TernError | None) -> None:
            end(answer)
            after(answer)

        return message, both

    def watch(self, future: "asyncio.Future[SendResult]", after: OnAnswer) -> None:
        """Report the outcome of a message when `future` has it."""

        def report(done: "asyncio.Future[SendResult]") -> None:
            if done.cancelled():
                after(None)
                return
            error = done.exception()
            if error is None:
                after(done.result())
            else:
                after(error if isinstance(error, TernError) else None)

        future.add_done_callback(report)

    def begin_rows(
        self, count: int, message_at: Callable[[int], Message]
    ) -> tuple[Mapping[int, Message], EndSpans] | None:
        """Return the traced messages of a part with many, by row, and the end of their spans.

        Args:
            count: Number of messages.
            message_at: Function that returns the message of a row.
        """
        if self._spans is None or not (picked := self._spans.picks(count)):
            return None
        return self._spans.begin_many({row: message_at(row) for row in picked}, count)

    def before(self, message: Message) -> tuple[Message, OnAnswer]:
        """Return the message to send instead of `message`, and the function for its outcome.

        Raises:
            TernError: An interceptor refused the message; those before it know the error.
        """
        began_at_ms = self._clock.wall_ms()
        for count, interceptor in enumerate(self._interceptors):
            try:
                message = _checked(message, interceptor.before_send(message))
            except Exception as raised:
                error = raised if isinstance(raised, TernError) else SendVetoed(raised)
                self._report(count, message, error, began_at_ms, took_ms=0)
                if error is raised:
                    raise
                raise error from raised

        def after(answer: SendResult | TernError | None) -> None:
            if answer is None:
                return
            took_ms = max(0, self._clock.wall_ms() - began_at_ms)
            self._report(len(self._interceptors), message, answer, began_at_ms, took_ms=took_ms)

        return message, after

    def _report(
        self,
        count: int,
        message: Message,
        answer: SendResult | TernError,
        began_at_ms: int,
        *,
        took_ms: int,
    ) -> None:
        """Call the first `count` interceptors, the last one first."""
        event = SendEvent(
            group=self._group,
            message=message,
            result=None if isinstance(answer, TernError) else answer,
            error=answer if isinstance(answer, TernError) else None,
            began_at_ms=began_at_ms,
            took_ms=took_ms,
        )
        for interceptor in reversed(self._interceptors[:count]):
            call_safely(interceptor.after_send, event)

    async def send_many(
        self,
        messages: Sequence[Message],
        send_many: Callable[[Sequence[Message]], Awaitable[SendResults]],
    ) -> SendResults:
        """Send by `send_many` all messages that no interceptor refuses.

        Raises:
            SendManyFailed: Some messages were refused, or not stored.
        """
        if self._spans is not None:
            send_many = partial(self._spans.send_many, send=send_many)
        if not self.has_interceptors:
            return await send_many(messages)
        refusals: list[TernError | None] = []
        sent: list[Message] = []
        afters: list[OnAnswer] = []
        for message in messages:
            try:
                each, after = self.before(message)
            except TernError as error:
                refusals.append(error)
            else:
                refusals.append(None)
                sent.append(each)
                afters.append(after)
        results: SendResults | None = None
        outcomes: Sequence[SendResult | TernError]
        try:
            outcomes = results = await send_many(sent)
        except SendManyFailed as failed:
            outcomes = failed.results
        for after, outcome in zip(afters, outcomes, strict=True):
            after(outcome)
        if results is None or len(sent) < len(messages):
            rest = iter(outcomes)
            raise SendManyFailed([refusal or next(rest) for refusal in refusals])
        return results

    async def send_batch(
        self,
        messages: Sequence[Message],
        send_batch: Callable[[Sequence[Message]], Awaitable[list[SendResult]]],
    ) -> list[SendResult]:
        """Send a batch by `send_batch`; the refusal of one message refuses all."""
        if self._spans is not None:
            send_batch = partial(self._spans.send_many, send=send_batch)
        if not self.has_interceptors:
            return await send_batch(messages)
        sent: list[Message] = []
        afters: list[OnAnswer] = []
        try:
            for message in messages:
                each, after = self.before(message)
                sent.append(each)
                afters.append(after)
            results = await send_batch(sent)
        except TernError as error:
            for after in afters:
                after(error)
            raise
        for after, result in zip(afters, results, strict=True):
            after(result)
        return results


def _always() -> bool:
    return True


def _checked(before: Message, after: object) -> Message:
    """Return the message that an interceptor made of `before`.

    Raises:
        TypeError: The result is no message, or lacks properties that the client itself had added.
    """
    if not isinstance(after, Message):
        raise TypeError(f"before_send returned {after!r}, must return a message")
    if isinstance(before, SystemMessage) and (
        not isinstance(after, SystemMessage) or after.system_properties != before.system_properties
    ):
        raise TypeError("before_send dropped system properties: copy with dataclasses.replace")
    return after
