"""Producer of a client's own messages: traces, retry copies, replies.

It sends one message at a time. The producer for applications is much faster.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ternmq_client.instance import ClientInstance
from ternmq_model.errors import RequestTimedOut, TernError, TransportError, Unreachable
from ternmq_model.message import SendResult, SendStatus
from ternmq_model.message_id import parse_offset_message_id
from ternmq_model.names import check_topic
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.service_methods import SEND

if TYPE_CHECKING:
    from ternmq_remoting.rpc import Connection

_BROKERS_MAX: Final = 3
"""Most brokers that a send tries if any broker may store the message."""


class InternalProducer:
    """Producer of a client's own messages. It has no state.

    Args:
        client: Client that is open during the sends.
    """

    def __init__(self, client: ClientInstance) -> None:
        self._client = client

    async def send(
        self,
        topic: str,
        body: bytes,
        properties: Mapping[str, str],
        *,
        broker_name: str | None = None,
        queue_id: int = -1,
        timeout_s: float,
        producer_group: str = "",
        flag: int = 0,
        sys_flag: int = 0,
        born_at_ms: int = 0,
    ) -> SendResult:
        """Send one message and return its result. No topic is created.

        Cancelling stops the wait. The message may be stored all the same.

        Args:
            topic: Name of the topic.
            body: Content, at most 4 MiB.
            properties: Properties of the application and the system. UNIQ_KEY is added.
            broker_name: Broker that stores the message. None = any broker of the topic's route; up
                to three are tried, unless one may have stored the message.
            queue_id: Id of the queue; −1 = the broker chooses one.
            timeout_s: Timeout of each attempt, s.
            producer_group: Producer group; may be empty.
            flag: Number of the application.
            sys_flag: Compression bits.
            born_at_ms: Creation of the message, Unix ms; 0 = now.

        Returns:
            Queue and offset. A status other than SEND_OK means stored and not (yet) confirmed.

        Raises:
            TopicNotFound: No broker has the topic.
            TernError: Error of the last attempt. With `may_have_happened` the message may be
                stored.
        """
        request = messages.SendRequest(
            producer_group=producer_group,
            topic=check_topic(topic),
            queue_id=queue_id,
            body=body,
            properties=properties,
            flag=flag,
            sys_flag=sys_flag,
            born_at_ms=born_at_ms,
            auto_create=messages.AutoCreate(),
        )
        if broker_name is not None:
            return await self._send(broker_name, request, timeout_s)
        failure: TernError = Unreachable(f"topic {topic}: none of its brokers can be written now")
        for name in await self._writable(topic):
            try:
                return await self._send(name, request, timeout_s)
            except TernError as error:
                failure = error
                if error.may_have_happened or not error.retryable:
                    break
        raise failure

    async def _writable(self, topic: str) -> list[str]:
        """Return the brokers to try, in random order."""
        route = await self._client.routes.route(topic)
        names = sorted({queue.broker_name for queue in route.write_queues()})
        return self._client.env.random.sample(names, min(len(names), _BROKERS_MAX))

    async def _send(
        self, broker_name: str, request: messages.SendRequest, timeout_s: float
    ) -> SendResult:
        connection: Connection = await self._client.broker(broker_name)
        try:
            reply = await connection.call(SEND, request, timeout_s=timeout_s)
        except TransportError as error:
            if not isinstance(error, RequestTimedOut):
                self._client.forget(broker_name, connection)
            raise
        store_host, physical_offset = parse_offset_message_id(reply.offset_message_id)
        return SendResult(
            SendStatus(reply.status.code),
            reply.message_id,
            MessageQueue(request.topic, broker_name, reply.queue_id),
            QueueOffset(reply.queue_offset),
            physical_offset,
            store_host,
        )
