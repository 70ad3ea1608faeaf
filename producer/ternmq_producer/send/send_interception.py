"""Interception of sends: a producer's interceptors, around each of its verbs."""

from collections.abc import Awaitable, Callable, Sequence

from ternmq_client.interceptors import SendEvent, SendInterceptor, call_safely
from ternmq_model.clock import Clock
from ternmq_model.errors import SendVetoed, TernError
from ternmq_model.message import Message, SendManyFailed, SendResult, SystemMessage
from ternmq_producer.batch.bulk import SendResults

OnAnswer = Callable[[SendResult | TernError], None]
"""Reports the outcome of one message to its interceptors."""


class SendInterception:
    """Interceptors of one producer, as its sends call them.

    Args:
        group: Name of the producer group.
        interceptors: Interceptors in the order in which they are called before a send.
        clock: Clock of the times in events.
    """

    def __init__(self, group: str, interceptors: Sequence[SendInterceptor], clock: Clock) -> None:
        self._group = group
        self._interceptors = interceptors
        self._clock = clock

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

        def after(answer: SendResult | TernError) -> None:
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
