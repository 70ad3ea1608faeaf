"""Replies to request messages.

Source: RocketMQ `MessageUtil.createReplyMessage`.
"""

from collections.abc import Mapping

from ternmq_client.instance import ClientInstance
from ternmq_client.internal_producer import InternalProducer
from ternmq_model.arguments import is_kind
from ternmq_model.errors import IllegalMessage, UsageError
from ternmq_model.message import SendResult
from ternmq_model.names import REPLY_SUFFIX
from ternmq_model.properties import (
    CLUSTER,
    CORRELATION_ID,
    MESSAGE_TYPE,
    REPLY,
    REPLY_TO_CLIENT,
    RESERVED,
    TTL,
    check_property,
)
from ternmq_model.stored_message import StoredMessage


class ReplyingClient:
    """Base of consumers that can answer requests."""

    _client: ClientInstance

    async def reply(
        self,
        request: StoredMessage,
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Answer `request`, which a producer sent with `Producer.request`.

        The call returns when the request's broker has passed the reply on. The requester may have
        stopped waiting. After cancelling, the reply may still be on its way.

        Args:
            request: Consumed request.
            body: Content of the reply, at most 4 MiB.
            properties: Properties of the reply.
            timeout_s: Timeout, s; None = `request_timeout_s` of the client.

        Returns:
            Queue and offset of the stored reply; offset −1 if the broker stores no replies.

        Raises:
            UsageError: `request` expects no reply.
            IllegalMessage: A property is illegal, or the body is not `bytes`.
            ClientNotOnline: The requester is gone.
            TernError: The broker did not get the reply.
        """
        if not is_kind(body, bytes):
            raise IllegalMessage(f"the body of a reply is {type(body).__name__}, must be bytes")
        client = self._client
        topic, told = reply_of(request, properties or {})

        async def send(told: Mapping[str, str]) -> SendResult:
            return await InternalProducer(client).send(
                topic,
                body,
                told,
                broker_name=request.queue.broker_name,
                queue_id=0,
                timeout_s=client.config.request_timeout_s if timeout_s is None else timeout_s,
            )

        if client.telemetry is None:
            return await send(told)
        return await client.telemetry.send_one(topic, told, send)


def is_request(message: StoredMessage) -> bool:
    """Return whether `message` expects a reply."""
    return CORRELATION_ID in message.properties and REPLY_TO_CLIENT in message.properties


def reply_of(request: StoredMessage, properties: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the topic and the properties of a reply to `request`. Pure.

    Args:
        request: Consumed request.
        properties: Properties of the reply.

    Raises:
        UsageError: `request` expects no reply.
        IllegalMessage: A property is illegal.
    """
    asked = request.properties
    if not is_request(request) or CLUSTER not in asked:
        raise UsageError(f"{request!r} is no request: no client waits for a reply")
    for name, value in properties.items():
        if name in RESERVED:
            raise IllegalMessage(f"property {name!r} is reserved; choose another name")
        check_property(name, value)
    told = {**properties, MESSAGE_TYPE: REPLY}
    told |= {name: asked[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL) if name in asked}
    return asked[CLUSTER] + REPLY_SUFFIX, told
