"""What a slave serves and what it refuses, RPC by RPC. Pure.

A slave never writes its log or its master's tables by itself: what would make it do so is refused
in this one place. Whoever is refused may try elsewhere, and nothing was done.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, Never

from ternmq_model.errors import RefusedError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_remoting import contracts
from ternmq_remoting.rpc import Call, Handler, StreamRpc, UnaryRpc

Rpc = UnaryRpc[Any, Any] | StreamRpc[Any, Any]


class OnSlave(Enum):
    """What a slave does with an RPC."""

    SERVED = auto()
    READ = auto()
    """Served as long as slaves may be read from (`broker.slave_read_enabled`)."""

    REFUSED = auto()


RULES: Final[Mapping[Rpc, OnSlave]] = {
    contracts.SEND: OnSlave.REFUSED,
    contracts.SEND_STREAM: OnSlave.REFUSED,
    contracts.PULL: OnSlave.READ,
    contracts.PULL_STREAM: OnSlave.READ,
    contracts.SCAN: OnSlave.READ,
    contracts.VIEW_MESSAGE: OnSlave.SERVED,
    contracts.QUERY_MESSAGES: OnSlave.SERVED,
    contracts.SESSION: OnSlave.SERVED,
    contracts.LIST_MEMBERS: OnSlave.SERVED,
    contracts.COMMIT_OFFSETS: OnSlave.SERVED,
    contracts.QUERY_OFFSET: OnSlave.SERVED,
    contracts.LOCK_QUEUES: OnSlave.REFUSED,
    contracts.UNLOCK_QUEUES: OnSlave.REFUSED,
    contracts.SEND_BACK: OnSlave.REFUSED,
    contracts.END_TRANSACTION: OnSlave.REFUSED,
    contracts.END_TRANSACTIONS: OnSlave.REFUSED,
    contracts.FIND_TRANSACTIONS: OnSlave.REFUSED,
    contracts.LIST_TRANSACTIONS: OnSlave.REFUSED,
    contracts.ROLL_BACK_STAGED: OnSlave.REFUSED,
    contracts.QUERY_OFFSET_BY_TIME: OnSlave.SERVED,
    contracts.MEASURE_QUEUES: OnSlave.SERVED,
    contracts.PUT_TOPIC: OnSlave.REFUSED,
    contracts.PUT_TOPICS: OnSlave.REFUSED,
    contracts.DELETE_TOPIC: OnSlave.REFUSED,
    contracts.DESCRIBE_TOPIC: OnSlave.SERVED,
    contracts.LIST_GROUPS: OnSlave.SERVED,
    contracts.DESCRIBE_GROUP: OnSlave.SERVED,
    contracts.DESCRIBE_BROKER: OnSlave.SERVED,
    contracts.CLEAN_STORE: OnSlave.SERVED,
    contracts.DESCRIBE_STORE: OnSlave.SERVED,
    contracts.PUT_GROUP: OnSlave.REFUSED,
    contracts.DELETE_GROUP: OnSlave.REFUSED,
    contracts.RESET_OFFSETS: OnSlave.REFUSED,
    contracts.CLONE_OFFSETS: OnSlave.REFUSED,
    contracts.DESCRIBE_CONSUMER: OnSlave.SERVED,
    contracts.LIST_PRODUCERS: OnSlave.SERVED,
    contracts.DESCRIBE_STATISTICS: OnSlave.SERVED,
    contracts.LIST_SETTINGS: OnSlave.SERVED,
    contracts.UPDATE_SETTINGS: OnSlave.SERVED,
    contracts.PROMOTE: OnSlave.SERVED,
    contracts.FOLLOW: OnSlave.SERVED,
    contracts.METADATA: OnSlave.SERVED,
    contracts.REPLICATION_STATUS: OnSlave.SERVED,
}
"""Every RPC that a broker serves. Who may follow whom is `Follow`'s own to say."""


def slave_handlers(
    handlers: Sequence[Handler], name: str, broker_id: int, *, may_be_read: Callable[[], bool]
) -> list[Handler]:
    """Return a broker's handlers as a slave has them.

    Args:
        handlers: As a master serves them.
        name: The broker's name.
        broker_id: The slave's id.
        may_be_read: Tells, for each pull, whether slaves may be read from now.

    Raises:
        KeyError: An RPC has no rule.
    """
    who = f"broker {name} (id {broker_id}) is a slave"
    return [_ruled(handler, RULES[handler.rpc], who, may_be_read) for handler in handlers]


def _ruled(handler: Handler, rule: OnSlave, who: str, may_be_read: Callable[[], bool]) -> Handler:
    if rule is OnSlave.SERVED:
        return handler
    serve = handler.function

    async def refuse(_asked: Any, _call: Call) -> Never:
        raise is_slave(who, "its master alone does this")

    async def read(asked: Any, call: Call) -> Any:
        if not may_be_read():
            raise is_slave(who, "slaves may not be read from (broker.slave_read_enabled)")
        return await serve(asked, call)

    return Handler(handler.rpc, refuse if rule is OnSlave.REFUSED else read)


def is_slave(who: str, why: str) -> RefusedError:
    """Return what a slave tells who asks for what it does not do. Nothing was done."""
    return refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"{who}: {why}")
