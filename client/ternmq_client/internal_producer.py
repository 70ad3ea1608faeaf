"""Producer of the messages that clients send themselves: traces, retry copies, replies.

One message at a time. Applications use a producer, which is much faster.
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
"""Brokers that are tried, when any will do."""


class InternalProducer:
    """Producer of single messages of a client's own. Has no state.

    Args:
        client: Open while this is used.
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
        """Send one message and return where it was stored. No topic is created.

        Cancelling stops the waiting: the message may be stored all the same.

        Args:
            topic: Where to.
            body: At most 4 MiB.
            properties: Those of the application and of the system alike. UNIQ_KEY is added.
            broker_name: That broker alone. None = any that the topic's route names; up to three are
                tried as long as none may have stored it.
            queue_id: −1 = the broker picks one.
            timeout_s: For each attempt.
            producer_group: Who sends; empty = nobody in particular.
            flag: The application's number.
            sys_flag: Compression bits.
            born_at_ms: When the message was made, Unix milliseconds; 0 = now.

        Returns:
            Its place. With a status other than SEND_OK it is stored and not (yet) confirmed.

        Raises:
            TopicNotFound: No broker has the topic.
            TernError: The last attempt's error. `may_have_happened` tells whether it may be stored.
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
