"""The policy of a slave for each RPC: served, served to readers, or refused. Pure.

A slave never writes its log or its master's tables by itself. This module alone refuses RPCs that
would do so. A refused call had no effect, and may be tried at the master.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, Never

from ternmq_model.errors import RefusedError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import Call, Handler, StreamRpc, UnaryRpc

Rpc = UnaryRpc[Any, Any] | StreamRpc[Any, Any]


class SlaveRpcPolicy(Enum):
    """Treatment of an RPC by a slave."""

    SERVED = auto()
    READ = auto()
    """Served while slaves may be read from (`broker.slave_read_enabled`)."""

    REFUSED = auto()


RULES: Final[Mapping[Rpc, SlaveRpcPolicy]] = {
    service_methods.SEND: SlaveRpcPolicy.REFUSED,
    service_methods.SEND_STREAM: SlaveRpcPolicy.REFUSED,
    service_methods.PULL: SlaveRpcPolicy.READ,
    service_methods.PULL_STREAM: SlaveRpcPolicy.READ,
    service_methods.SCAN: SlaveRpcPolicy.READ,
    service_methods.VIEW_MESSAGE: SlaveRpcPolicy.SERVED,
    service_methods.QUERY_MESSAGES: SlaveRpcPolicy.SERVED,
    service_methods.SESSION: SlaveRpcPolicy.SERVED,
    service_methods.LIST_MEMBERS: SlaveRpcPolicy.SERVED,
    service_methods.COMMIT_OFFSETS: SlaveRpcPolicy.SERVED,
    service_methods.QUERY_OFFSET: SlaveRpcPolicy.SERVED,
    service_methods.LOCK_QUEUES: SlaveRpcPolicy.REFUSED,
    service_methods.UNLOCK_QUEUES: SlaveRpcPolicy.REFUSED,
    service_methods.SEND_BACK: SlaveRpcPolicy.REFUSED,
    service_methods.END_TRANSACTION: SlaveRpcPolicy.REFUSED,
    service_methods.END_TRANSACTIONS: SlaveRpcPolicy.REFUSED,
    service_methods.FIND_TRANSACTIONS: SlaveRpcPolicy.REFUSED,
    service_methods.LIST_TRANSACTIONS: SlaveRpcPolicy.REFUSED,
    service_methods.ROLL_BACK_STAGED: SlaveRpcPolicy.REFUSED,
    service_methods.QUERY_OFFSET_BY_TIME: SlaveRpcPolicy.SERVED,
    service_methods.MEASURE_QUEUES: SlaveRpcPolicy.SERVED,
    service_methods.PUT_TOPIC: SlaveRpcPolicy.REFUSED,
    service_methods.PUT_TOPICS: SlaveRpcPolicy.REFUSED,
    service_methods.DELETE_TOPIC: SlaveRpcPolicy.REFUSED,
    service_methods.DESCRIBE_TOPIC: SlaveRpcPolicy.SERVED,
    service_methods.LIST_GROUPS: SlaveRpcPolicy.SERVED,
    service_methods.DESCRIBE_GROUP: SlaveRpcPolicy.SERVED,
    service_methods.DESCRIBE_BROKER: SlaveRpcPolicy.SERVED,
    service_methods.CLEAN_STORE: SlaveRpcPolicy.SERVED,
    service_methods.DESCRIBE_STORE: SlaveRpcPolicy.SERVED,
    service_methods.PUT_GROUP: SlaveRpcPolicy.REFUSED,
    service_methods.DELETE_GROUP: SlaveRpcPolicy.REFUSED,
    service_methods.RESET_OFFSETS: SlaveRpcPolicy.REFUSED,
    service_methods.CLONE_OFFSETS: SlaveRpcPolicy.REFUSED,
    service_methods.DESCRIBE_CONSUMER: SlaveRpcPolicy.SERVED,
    service_methods.LIST_PRODUCERS: SlaveRpcPolicy.SERVED,
    service_methods.DESCRIBE_STATISTICS: SlaveRpcPolicy.SERVED,
    service_methods.LIST_SETTINGS: SlaveRpcPolicy.SERVED,
    service_methods.UPDATE_SETTINGS: SlaveRpcPolicy.SERVED,
    service_methods.PROMOTE: SlaveRpcPolicy.SERVED,
    service_methods.FOLLOW: SlaveRpcPolicy.SERVED,
    service_methods.METADATA: SlaveRpcPolicy.SERVED,
    service_methods.REPLICATION_STATUS: SlaveRpcPolicy.SERVED,
}
"""Every RPC of a broker. The handshake of `Follow` decides which slave may follow."""


def slave_handlers(
    handlers: Sequence[Handler], name: str, broker_id: int, *, may_be_read: Callable[[], bool]
) -> list[Handler]:
    """Return the handlers of a slave.

    Args:
        handlers: Handlers of a master.
        name: Broker name.
        broker_id: Id of the slave.
        may_be_read: Returns, for each pull, whether slaves may be read from now.

    Raises:
        KeyError: An RPC has no rule.
    """
    who = f"broker {name} (id {broker_id}) is a slave"
    return [_ruled(handler, RULES[handler.rpc], who, may_be_read) for handler in handlers]


def _ruled(
    handler: Handler, rule: SlaveRpcPolicy, who: str, may_be_read: Callable[[], bool]
) -> Handler:
    if rule is SlaveRpcPolicy.SERVED:
        return handler
    serve = handler.function

    async def refuse(_request: Any, _call: Call) -> Never:
        raise is_slave(who, "only its master serves this request")

    async def read(request: Any, call: Call) -> Any:
        if not may_be_read():
            raise is_slave(who, "reads from slaves are off (broker.slave_read_enabled)")
        return await serve(request, call)

    return Handler(handler.rpc, refuse if rule is SlaveRpcPolicy.REFUSED else read)


def is_slave(who: str, why: str) -> RefusedError:
    """Return the refusal of a call that a slave does not serve. The call had no effect."""
    return refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"{who}: {why}")
