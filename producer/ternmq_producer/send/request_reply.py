"""Requests, and the futures that wait for their replies.

A request is a message with an id and the id of the waiting client. The consumer sends the reply to
the broker of the request, which forwards it over the requester's Session.

Source: RocketMQ `DefaultMQProducerImpl.request`, `RequestFutureHolder`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from ternmq_client.instance import ClientInstance
from ternmq_model.errors import ClosedError, CorruptRecord, RequestTimedOut
from ternmq_model.message import Message, SystemMessage
from ternmq_model.properties import CORRELATION_ID, REPLY_TO_CLIENT, TTL
from ternmq_model.stored_message import StoredMessage, decode_single
from ternmq_producer.send.message_sender import MessageSender

if TYPE_CHECKING:
    from ternmq_protos.v1 import groups_pb2 as groups


class RequestFutures:
    """Futures of one producer's requests that have no reply yet. Owned by it.

    Args:
        client: Open client, whose Sessions receive the replies.
        sender: Sender, which counts late replies.
    """

    def __init__(self, client: ClientInstance, sender: MessageSender) -> None:
        self._client = client
        self._sender = sender
        self._waiting: dict[str, asyncio.Future[StoredMessage]] = {}
        self._end = client.sessions.on_command("reply_arrived", self._on_reply)

    def close(self) -> None:
        """Fail every request that waits for its reply."""
        self._end()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ClosedError("the producer was closed before the reply came"))

    async def request(
        self,
        message: Message,
        send: Callable[[Message, float], Awaitable[None]],
        *,
        timeout_s: float,
    ) -> StoredMessage:
        """Send `message` as a request by `send`, and return the reply.

        Raises:
            RequestTimedOut: No reply came in time, or the request was not sent in time.
            TernError: The request was not sent.
        """
        clock = self._client.env.clock
        end_ms = clock.monotonic_ms() + round(timeout_s * 1000)
        correlation_id = f"{self._client.env.random.getrandbits(128):032x}"
        sent = as_request(
            message,
            correlation_id=correlation_id,
            client_id=self._client.client_id,
            ttl_ms=max(1, round(timeout_s * 1000)),
        )
        try:
            async with self._client.env.timers.timeout(timeout_s):
                await self._be_known(message.topic, timeout_s)
        except TimeoutError:
            error = RequestTimedOut(f"request to {message.topic!r}: not sent in time")
            error.may_have_happened = False
            raise error from None
        future: asyncio.Future[StoredMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        try:
            await send(sent, max(0.001, (end_ms - clock.monotonic_ms()) / 1000))
            async with self._client.env.timers.timeout(
                max(0, end_ms - clock.monotonic_ms()) / 1000
            ):
                reply = await future
        except TimeoutError:
            raise RequestTimedOut(
                f"request to {message.topic!r}: no reply within {timeout_s:g} s"
            ) from None
        finally:
            self._waiting.pop(correlation_id, None)
        if (telemetry := self._client.telemetry) is not None:
            telemetry.reply_arrived(reply)
        return reply

    async def _be_known(self, topic: str, timeout_s: float) -> None:
        """Open a Session with each broker that may forward the reply."""
        route = self._client.routes.cached(topic)
        if route is None:
            config = self._sender.config
            template = config.template_topic if config.creates_topics else None
            route = await self._client.routes.route_to_write(
                topic, template=template, queues_max=config.topic_queues
            )
        for queue in route.write_queues():
            self._client.sessions.attend(queue.broker_name)
        await self._client.sessions.attempted(timeout_s=timeout_s)

    def _on_reply(self, reply: "groups.SessionReply", broker_name: str) -> None:
        arrived = reply.reply_arrived
        future = self._waiting.get(arrived.correlation_id)
        if future is None or future.done():
            self._sender.late_replies += 1
            return
        try:
            future.set_result(decode_single(arrived.record, broker_name))
        except CorruptRecord as error:
            future.set_exception(error)


def as_request(
    message: Message, *, correlation_id: str, client_id: str, ttl_ms: int
) -> SystemMessage:
    """Return `message` with the properties that its consumer needs for a reply."""
    own = {field.name: getattr(message, field.name) for field in fields(Message)}
    before: Mapping[str, str] = {}
    if isinstance(message, SystemMessage):
        before = message.system_properties
    properties = {CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: client_id, TTL: str(ttl_ms)}
    return SystemMessage(**own, system_properties={**before, **properties})
