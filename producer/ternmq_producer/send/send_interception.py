"""Interception of sends: a producer's interceptors, around each of its verbs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ternmq_client.interceptors import SendInterceptors
from ternmq_model.clock import Clock
from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendManyFailed, SendResult
from ternmq_producer.batch.bulk import SendResults


class SendInterception:
    """Calls interceptors before and after sends. Owned by a producer that has some.

    Args:
        interceptors: At least one.
        clock: For what they are told.
    """

    def __init__(self, interceptors: SendInterceptors, clock: Clock) -> None:
        self._interceptors = interceptors
        self._clock = clock

    def before(self, message: Message) -> tuple[Message, Callable[[SendResult | TernError], None]]:
        """Return what is to be sent, and what to tell of its answer.

        Raises:
            TernError: An interceptor refused it.
        """
        began_at_ms = self._clock.wall_ms()
        sent = self._interceptors.before(message, now_ms=began_at_ms)

        def after(answer: SendResult | TernError) -> None:
            self._interceptors.after(
                sent, answer, began_at_ms=began_at_ms, now_ms=self._clock.wall_ms()
            )

        return sent, after

    async def send(
        self, message: Message, send: Callable[[Message], Awaitable[SendResult]]
    ) -> SendResult:
        """Send one message by `send`."""
        sent, after = self.before(message)
        try:
            result = await send(sent)
        except TernError as error:
            after(error)
            raise
        after(result)
        return result

    async def enqueue(
        self, message: Message, enqueue: Callable[[Message], Awaitable[asyncio.Future[SendResult]]]
    ) -> "asyncio.Future[SendResult]":
        """Queue one message by `enqueue`."""
        sent, after = self.before(message)
        try:
            future = await enqueue(sent)
        except TernError as error:
            after(error)
            raise

        def tell(done: "asyncio.Future[SendResult]") -> None:
            if done.cancelled():
                return
            error = done.exception()
            if error is None:
                after(done.result())
            elif isinstance(error, TernError):
                after(error)

        future.add_done_callback(tell)
        return future

    async def send_many(
        self,
        messages: Sequence[Message],
        send_many: Callable[[Sequence[Message]], Awaitable[SendResults]],
    ) -> SendResults:
        """Send messages by `send_many`, but for those that an interceptor refuses.

        Raises:
            SendManyFailed: Some were refused, or not stored.
        """
        answers: list[TernError | None] = []
        sent: list[Message] = []
        afters: list[Callable[[SendResult | TernError], None]] = []
        for message in messages:
            try:
                each, after = self.before(message)
            except TernError as error:
                answers.append(error)
            else:
                answers.append(None)
                sent.append(each)
                afters.append(after)
        results: SendResults | None = None
        told: Sequence[SendResult | TernError]
        try:
            told = results = await send_many(sent)
        except SendManyFailed as failed:
            told = failed.results
        for after, answer in zip(afters, told, strict=True):
            after(answer)
        if results is None or len(sent) < len(messages):
            left = iter(told)
            raise SendManyFailed([answer or next(left) for answer in answers])
        return results

    async def send_batch(
        self,
        messages: Sequence[Message],
        send_batch: Callable[[Sequence[Message]], Awaitable[list[SendResult]]],
    ) -> list[SendResult]:
        """Send a batch by `send_batch`; one message that is refused refuses all."""
        sent: list[Message] = []
        afters: list[Callable[[SendResult | TernError], None]] = []
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
