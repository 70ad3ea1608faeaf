"""Requests that no client of ours sends, to every RPC of a broker and a NameServer.

The network in memory raises what handlers raise on no purpose when it ends.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ternmq_broker.config import BrokerRole
from ternmq_model.errors import InvalidParameter, RefusedError
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import Connection, StreamRpc
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, membership, serving

UNKNOWN_NUMBER: Final = 77
RPCS: Final[dict[str, Any]] = {rpc.path: rpc for rpc in service_methods.ALL}

OPENINGS: Final[dict[StreamRpc[Any, Any], Any]] = {
    service_methods.SESSION: groups.SessionRequest(
        hello=groups.Hello(client_id="a@1", incarnation="1", consumer_groups=[membership("G", "T")])
    ),
    service_methods.SEND_STREAM: messages.SendStreamRequest(
        open=messages.SendStreamOpen(client_id="a@1")
    ),
    service_methods.PULL_STREAM: messages.PullStreamRequest(
        open=messages.PullStreamOpen(client_id="a@1")
    ),
    service_methods.SCAN: messages.ScanRequest(topic="T", end_offset=1),
    service_methods.END_TRANSACTIONS: transactions.EndTransactionsRequest(),
    service_methods.FIND_TRANSACTIONS: transactions.FindTransactionsRequest(producer_group="G"),
    service_methods.LIST_TRANSACTIONS: transactions.ListTransactionsRequest(),
    service_methods.ROLL_BACK_STAGED: transactions.RollBackStagedRequest(staged_for="Q"),
    service_methods.METADATA: replication.MetadataRequest(),
    service_methods.FOLLOW: replication.FollowRequest(
        hello=replication.FollowHello(
            cluster="DefaultCluster",
            broker_name="broker-a",
            broker_id=1,
            incarnation="1",
            flush_mode="sync",
        )
    ),
}
"""What every stream may begin with."""


class Garbage:
    """A request whose bytes are no message."""

    def SerializeToString(self) -> bytes:
        return b"\xff" * 9


@asynccontextmanager
async def both() -> AsyncGenerator[tuple[Client, Connection]]:
    """Give a client of a master and a connection to a NameServer."""
    async with serving(topics={"T": 1}, role=BrokerRole.ASYNC_MASTER) as (around, client):
        config = NameServerConfig(port=0)
        async with NameServer(config, around.environment("names")) as server:
            connection = await around.network.host("names").connect([server.address])
            yield client, connection
            await connection.close()


async def answer(
    client: Client, nameserver: Connection, rpc: Any, requests: Sequence[Any]
) -> Exception | None:
    """Return what ends a call or stream that sends `requests`; None = it ends well."""
    connection = nameserver if rpc.service == "ternmq.v1.NameServer" else client.connection
    try:
        if rpc not in OPENINGS:
            (request,) = requests
            await connection.call(rpc, request, timeout_s=40)
            return None
        stream: Any = connection.open(rpc)
        for request in requests:
            await stream.write(request)
            await asyncio.sleep(1)
        await stream.finish()
        while await stream.read() is not None:
            pass
    except Exception as error:
        return error
    return None


Path = tuple[FieldDescriptor, ...]


def paths(message: Descriptor, kinds: Collection[int]) -> Iterator[Path]:
    """Yield the way to each field of some kinds in a message, but for those in maps."""
    for field in message.fields:
        inner = field.message_type
        if field.type in kinds:
            yield (field,)
        elif inner is not None and not inner.GetOptions().map_entry:
            yield from ((field, *path) for path in paths(inner, kinds))


def with_value(request: Any, path: Path, value: object) -> Any:
    """Return `request` with a value at the end of a path, one element in each list on the way."""
    *way, last = path
    inner = request
    for field in way:
        inner = getattr(inner, field.name)
        inner = inner.add() if hasattr(inner, "add") else inner
    if hasattr(getattr(inner, last.name), "append"):
        getattr(inner, last.name).append(value)
    else:
        setattr(inner, last.name, value)
    return request


ENUMS: Final = [
    (rpc, path)
    for rpc in RPCS.values()
    for path in paths(rpc.request.DESCRIPTOR, {FieldDescriptor.TYPE_ENUM})
]


def test_every_enum_of_the_contracts_is_tried() -> None:
    assert {rpc.name for rpc, _ in ENUMS} == {
        "Session",
        "EndTransaction",
        "EndTransactions",
        "QueryOffsetByTime",
    }


@pytest.mark.parametrize(("rpc", "path"), ENUMS)
@pytest.mark.parametrize("is_opened", [False, True])
def test_unknown_enum_is_refused_with_a_code(rpc: Any, path: Path, is_opened: bool) -> None:
    request = with_value(rpc.request(), path, UNKNOWN_NUMBER)
    opening = [OPENINGS[rpc]] if is_opened and rpc in OPENINGS else []

    async def main() -> None:
        async with both() as (client, nameserver):
            error = await answer(client, nameserver, rpc, [*opening, request])
            assert isinstance(error, InvalidParameter), error
            assert f"{path[-1].name} {UNKNOWN_NUMBER}: must be one of " in str(error)

    run_in_virtual_time(main())


@pytest.mark.parametrize("path", RPCS)
@pytest.mark.parametrize("is_opened", [False, True])
def test_bytes_that_are_no_request_are_refused_with_a_code(path: str, is_opened: bool) -> None:
    rpc = RPCS[path]
    opening = [OPENINGS[rpc]] if is_opened and rpc in OPENINGS else []

    async def main() -> None:
        async with both() as (client, nameserver):
            neighbour, _ = await client.open_session("neighbour@1", membership("H", "T"))
            error = await answer(client, nameserver, rpc, [*opening, Garbage()])
            assert isinstance(error, InvalidParameter), error
            assert "the bytes are no " in str(error)
            await neighbour.write(groups.SessionRequest(heartbeat=groups.Heartbeat()))
            assert await neighbour.read() is not None

    run_in_virtual_time(main())


@pytest.mark.parametrize("path", RPCS)
def test_request_without_anything_never_crashes_its_handler(path: str) -> None:
    rpc = RPCS[path]
    empty: list[Any] = [rpc.request()] * (2 if rpc in OPENINGS else 1)

    async def main() -> None:
        async with both() as (client, nameserver):
            for requests in (empty, [OPENINGS[rpc], rpc.request()] if rpc in OPENINGS else empty):
                error = await answer(client, nameserver, rpc, requests)
                assert error is None or isinstance(error, RefusedError), error

    run_in_virtual_time(main())


EXTREMES: Final[dict[int, tuple[object, ...]]] = {
    FieldDescriptor.TYPE_INT32: (-(2**31), -1, 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), -1, 2**63 - 1),
    FieldDescriptor.TYPE_FIXED32: (2**32 - 1,),
    FieldDescriptor.TYPE_DOUBLE: (float("nan"), float("-inf")),
    FieldDescriptor.TYPE_STRING: ("\0", "\x1b[2J\u202e", "x" * 70_000),
    FieldDescriptor.TYPE_BYTES: (b"\xff" * 3,),
}


@pytest.mark.parametrize("path", RPCS)
def test_extreme_value_in_any_field_never_crashes_its_handler(path: str) -> None:
    rpc = RPCS[path]

    async def main() -> None:
        async with both() as (client, nameserver):
            for way in paths(rpc.request.DESCRIPTOR, EXTREMES):
                for value in EXTREMES[way[-1].type]:
                    request = with_value(rpc.request(), way, value)
                    for opening in [[], [OPENINGS[rpc]]] if rpc in OPENINGS else [[]]:
                        error = await answer(client, nameserver, rpc, [*opening, request])
                        assert error is None or isinstance(error, RefusedError), (way, error)

    run_in_virtual_time(main())


def test_every_stream_is_opened_well() -> None:
    assert set(OPENINGS) == {rpc for rpc in service_methods.ALL if isinstance(rpc, StreamRpc)}

    async def main() -> None:
        async with both() as (client, nameserver):
            for rpc, opening in OPENINGS.items():
                assert await answer(client, nameserver, rpc, [opening]) is None, rpc.path

    run_in_virtual_time(main())
