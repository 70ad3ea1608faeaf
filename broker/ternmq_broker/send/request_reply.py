"""Forwarding of replies to the clients that wait for them.

Source: RocketMQ `ReplyMessageProcessor`.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ternmq_broker.groups.sessions import SessionManager
from ternmq_broker.state.topics import TopicTable
from ternmq_model.clock import Clock
from ternmq_model.errors import refusal
from ternmq_model.names import REPLY_SUFFIX
from ternmq_model.properties import CORRELATION_ID, MESSAGE_TYPE, REPLY, REPLY_TO_CLIENT
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyForwarder:
    """Forwarder of replies on the Sessions of their requesters. Owns nothing."""

    sessions: SessionManager
    topics: TopicTable
    clock: Clock
    cluster: str
    are_stored: bool
    """Forwarded replies are stored as well."""

    on_created: Callable[[], None]
    """Called when the topic of replies was created."""

    @property
    def topic(self) -> str:
        """The topic of all replies of this cluster."""
        return self.cluster + REPLY_SUFFIX

    def is_reply(self, topic: str, properties: Mapping[str, str]) -> bool:
        """Return whether a message to `topic` is a reply; the first reply creates its topic."""
        if topic != self.topic or properties.get(MESSAGE_TYPE) != REPLY:
            return False
        if self.topics.add_missing(topic, now_ms=self.clock.wall_ms()):
            logger.info("topic created topic=%s queues=%s by=%s", topic, 1, "reply")
            self.on_created()
        return True

    def forward(self, record: bytes, properties: Mapping[str, str]) -> None:
        """Send a reply to the requester, which may have given up by then.

        Raises:
            RefusedError: The reply names no client or request, or the client is not connected to
                this broker, or too many replies wait for it or all clients (SYSTEM_BUSY).
        """
        correlation_id = properties.get(CORRELATION_ID, "")
        client_id = properties.get(REPLY_TO_CLIENT, "")
        if not correlation_id or not client_id:
            remark = f"a reply needs the properties {CORRELATION_ID} and {REPLY_TO_CLIENT}"
            raise refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        session = self.sessions.table.live(client_id)
        arrived = groups.ReplyArrived(correlation_id=correlation_id, record=record)
        command = groups.SessionReply(reply_arrived=arrived)
        if session is None or session.broken_at_ms is not None:
            remark = f"client {client_id!r}, which waits for the reply, is not connected"
            raise refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        if not self.sessions.command(session, command):
            remark = f"client {client_id!r}, or all clients, have too many unread replies"
            raise refusal(ResponseCode.SYSTEM_BUSY, remark)
