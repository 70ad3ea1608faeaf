"""A NameServer and broker in one process whose every text is hostile, for tests of what is shown.

`python -m tests.support.hostile_peer` prints its port. Words on its command line:

* `names`: names of clusters, brokers and hosts are hostile as well, so that no broker is reached;
* `refusing`: everything but the way to the broker is refused, with a hostile remark.
"""

import asyncio
import sys
from functools import partial
from typing import Any, Final

from ternmq_client.tracing.trace_records import ConsumeBegan, encode
from ternmq_model.address import Address
from ternmq_model.errors import refusal
from ternmq_model.names import DEAD_LETTER_PREFIX, TRACE_TOPIC
from ternmq_model.permission import Action
from ternmq_model.properties import KEYS, ORIGIN_MESSAGE_ID, RETRY_TOPIC, TAGS, UNIQUE_KEY
from ternmq_model.response_code import ResponseCode
from ternmq_remoting import service_methods
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_remoting.rpc import Call, Handler, Identity, StreamRpc, UnaryRpc
from ternmq_security.access.access_table import AccessTable, first_administrator
from ternmq_security.access.grants import Effect, Grant, ResourcePattern
from ternmq_security.access.user import TokenHash, User
from tests.support.records import record, sizes_of

HOSTILE: Final = "x\x1b]0;t\x07\x1b[2J\r\n\t\x7f\x9b31m\u2028\u202e\u2066y"
"""Sets a title, clears a screen, forges a line, turns a line round: in UTF-8."""

UNKNOWN_NUMBER: Final = 77
"""What every enum holds: a number that no version of the contract has."""

CLUSTER: Final = "c"
BROKER: Final = "b"
PROPERTIES: Final = (
    *(TAGS, KEYS, UNIQUE_KEY, RETRY_TOPIC, ORIGIN_MESSAGE_ID, "DLQ_ORIGIN_TOPIC"),
    *("DLQ_ORIGIN_MESSAGE_ID", HOSTILE),
)
"""What every message has."""

STREAMS: Final = (service_methods.LIST_TRANSACTIONS, service_methods.ROLL_BACK_STAGED)

WAYS: Final = frozenset({service_methods.GET_CLUSTER, service_methods.GET_TOPIC_ROUTE})
"""What leads to the broker."""

_NUMBERS: Final = {
    **dict.fromkeys(
        ("broker_id", "queue_id", "min_offset", "code", "committed_offset", "offset"), 0
    ),
    **{"permissions": 6, "span_s": 60, "next_offset": 1, "max_offset": 1},
}
_REPEATED: Final = {"spans": 3}


class HostilePeer:
    """Fills replies. Stateless but for where it listens."""

    def __init__(self, words: list[str]) -> None:
        self.has_hostile_names = "names" in words
        self.is_refusing = "refusing" in words
        self.port = 0

    def handlers(self) -> list[Handler]:
        """Return every unary RPC of the contracts, and the streams that verbs ask."""
        rpcs = [rpc for rpc in service_methods.ALL if isinstance(rpc, UnaryRpc)]
        unary = [Handler(rpc, partial(self.answer, rpc)) for rpc in rpcs]
        return [*unary, *(Handler(rpc, partial(self.answer_stream, rpc)) for rpc in STREAMS)]

    async def answer_stream(self, rpc: StreamRpc[Any, Any], stream: Any, _call: Call) -> None:
        """Give one reply, in which every text is hostile."""
        if self.is_refusing:
            raise refusal(ResponseCode.SYSTEM_ERROR, HOSTILE)
        await stream.read()
        reply = rpc.reply()
        self.fill(reply)
        await stream.write(reply)

    async def answer(self, rpc: UnaryRpc[Any, Any], request: Any, _call: Call) -> Any:
        """Return a reply in which every text is hostile."""
        reply = rpc.reply()
        if getattr(request, "page_token", ""):
            return reply  # the last page of a list
        self.fill(reply)
        if self.is_refusing and rpc not in WAYS:
            reply.status.code = ResponseCode.SYSTEM_ERROR
            return reply
        reply.status.Clear()
        if rpc is service_methods.LIST_TOPICS:
            reply.topics.append(DEAD_LETTER_PREFIX + HOSTILE)
        if rpc is service_methods.GET_ACCESS:
            reply.table = _users().to_json()
        topic = str(getattr(request, "topic", ""))
        body = HOSTILE
        if topic == TRACE_TOPIC:
            body = encode(_began(request.key))
        found = record(
            topic or "T",
            body=body.encode(),
            properties=dict.fromkeys(PROPERTIES, HOSTILE),
        )
        if rpc is service_methods.VIEW_MESSAGE:
            reply.record = found
        elif rpc in (service_methods.QUERY_MESSAGES, service_methods.PULL):
            reply.records, reply.record_sizes = found, sizes_of([found]).tobytes()
        return reply

    def fill(self, message: Any) -> None:
        """Give every field of a message a value."""
        for field in message.DESCRIPTOR.fields:
            inner = getattr(message, field.name)
            count = _REPEATED.get(field.name, 1)
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                kind = field.message_type.fields_by_name["value"]
                if kind.message_type is None:
                    inner[HOSTILE] = self.value(kind)
                else:
                    self.fill(inner[HOSTILE])
            elif field.message_type is not None and hasattr(inner, "add"):
                for _ in range(count):
                    self.fill(inner.add())
            elif field.message_type is not None:
                inner.SetInParent()
                self.fill(inner)
            elif hasattr(inner, "append"):
                inner.extend([self.value(field)] * count)
            else:
                setattr(message, field.name, self.value(field))

    def value(self, field: Any) -> Any:
        """Return what a field that is no message holds."""
        if field.type == field.TYPE_BYTES:
            return HOSTILE.encode()
        if field.type == field.TYPE_STRING:
            names = {"cluster": CLUSTER, "broker_name": BROKER, "host": "127.0.0.1"}
            return HOSTILE if self.has_hostile_names else names.get(field.name, HOSTILE)
        if field.type == field.TYPE_ENUM:
            return UNKNOWN_NUMBER
        if field.name == "port":
            return self.port
        return _NUMBERS.get(field.name, 1)


def _users() -> AccessTable:
    tokens = (TokenHash("t", bytes(16), bytes(16), 2, 1, 1, 1),)
    table = first_administrator(AccessTable(), User("A", tokens, (HOSTILE,)), "test")
    admin = Grant("A", Effect.ALLOW, Action.ADMIN, ResourcePattern.parse("cluster"))
    table = table.with_grant(admin).with_user(User("B"))
    return table.with_denied_certificate(subject=HOSTILE + "y", serial="1f")


def _began(message_id: str) -> ConsumeBegan:
    return ConsumeBegan(
        at_ms=1,
        region=HOSTILE,
        group=HOSTILE,
        request_id=HOSTILE,
        message_id=message_id,
        retries=0,
        keys=HOSTILE,
    )


async def main() -> None:
    """Serve until the process is killed."""
    peer = HostilePeer(sys.argv[1:])
    identity = Identity(CLUSTER, BROKER, 0, 1)
    async with GrpcNetwork().serve(
        peer.handlers(), Address("127.0.0.1", 0), identity=identity
    ) as server:
        peer.port = server.address.port
        print(peer.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
