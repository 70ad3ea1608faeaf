"""Tracer of one producer or consumer.

Source: RocketMQ `AsyncTraceDispatcher`, `TraceConstants`.
"""

from contextlib import AsyncExitStack
from typing import Final

from ternmq_client.instance import ClientInstance
from ternmq_client.internal_producer import InternalProducer
from ternmq_client.tracing.trace_dispatcher import TraceDispatcher, TraceStatistics
from ternmq_client.tracing.trace_interceptors import ConsumeTraces, SendTraces
from ternmq_model.properties import KEYS
from ternmq_runtime.lifecycle import Lifecycle

_GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER-"


class Tracer(Lifecycle):
    """Sender of the traces of one producer or consumer, open inside `async with`.

    The client must be open. The traces go to its `trace_topic`.

    Args:
        client: Client of the producer or consumer.
        group: Group of the producer or consumer.
        role: `PRODUCE` or `CONSUME`.
    """

    def __init__(self, client: ClientInstance, group: str, role: str) -> None:
        self._client = client
        self._group = group
        self._sender = f"{_GROUP_PREFIX}{group}-{role}-0"
        self._topic = client.config.trace_topic
        self._producer = InternalProducer(client)
        self._dispatcher = TraceDispatcher(self._send, client.env.timers)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._dispatcher)

    @property
    def statistics(self) -> TraceStatistics:
        """Numbers of traced calls."""
        return self._dispatcher.statistics

    def of_sends(self) -> SendTraces:
        """Return the interceptor that traces sends."""
        return SendTraces(self._group, self._topic, self._dispatcher.offer)

    def of_consumption(self) -> ConsumeTraces:
        """Return the interceptor that traces calls of a listener."""
        return ConsumeTraces(self._topic, self._dispatcher.offer, self._client.env.random)

    async def _send(self, body: bytes, keys: str) -> None:
        await self._producer.send(
            self._topic,
            body,
            {KEYS: keys},
            timeout_s=self._client.config.request_timeout_s,
            producer_group=self._sender,
        )
