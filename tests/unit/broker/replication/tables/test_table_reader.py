import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from ternmq_broker.replication.protocol import ProtocolBroken
from ternmq_broker.replication.tables import table_reader
from ternmq_broker.replication.tables.table_reader import TableReader, TableUpdate
from ternmq_model.address import Address
from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.rpc import Call, ServerStream, stream
from ternmq_remoting.service_methods import METADATA
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import run_in_virtual_time

MASTER = Address("m", 10_911)
Reply = replication.MetadataReply


class Told:
    """A member that tells what a test says, and then nothing more."""

    def __init__(self, replies: Sequence[Reply], *, ends: bool) -> None:
        self._replies = replies
        self._ends = ends
        self.asked: list[replication.MetadataRequest] = []

    async def metadata(
        self, stream: ServerStream[replication.MetadataRequest, Reply], call: Call
    ) -> None:
        request = await stream.read()
        assert request is not None
        self.asked.append(request)
        for reply in self._replies:
            await stream.write(reply)
        if not self._ends:
            await asyncio.sleep(100)


def read(*replies: Reply, ends: bool = False) -> list[TableUpdate]:
    """Return what a reader takes of these replies."""
    found: list[TableUpdate] = []

    async def take(told: TableUpdate) -> None:
        found.append(told)

    async def main() -> None:
        member = Told(replies, ends=ends)
        async with (
            MemoryNetwork(Random(1)) as network,
            network.host("m").serve([stream(METADATA, member.metadata)], MASTER),
        ):
            connection = await network.host("s").connect([MASTER])
            reader = TableReader(connection, InlineBlocking())
            try:
                await reader.read_changed({"a": "1"}, take, wait_ms=7, tables=["a", "b"])
            finally:
                reader.cancel()
            (asked,) = member.asked
            assert (dict(asked.revisions), asked.wait_ms) == ({"a": "1"}, 7)
            assert list(asked.tables) == ["a", "b"]

    run_in_virtual_time(main())
    return found


def piece(text: str, *, last: bool = False, table: str = "a") -> Reply:
    return Reply(table=table, revision="2", piece=text.encode(), is_last_piece=last, log_end=9)


def test_pieces_of_one_table_become_one() -> None:
    told = read(
        piece('{"x":'),
        piece(" 1}", last=True),
        piece("{}", last=True, table="b"),
        Reply(is_end=True),
    )
    assert told == [TableUpdate("a", "2", 9, {"x": 1}), TableUpdate("b", "2", 9, {})]


def test_answer_without_a_table_is_returned() -> None:
    assert read(Reply(is_end=True)) == []


def test_silent_member_is_given_up() -> None:
    with pytest.raises(ProtocolBroken, match="sends no tables"):
        read(piece("{"))


def test_stream_that_ends_too_early_is_an_error() -> None:
    with pytest.raises(ProtocolBroken, match="ended"):
        read(piece("{}", last=True), ends=True)


def test_refusal_is_raised() -> None:
    status = common.Status(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark="not now")
    with pytest.raises(RefusedError, match="not now"):
        read(Reply(status=status))


@pytest.mark.parametrize(
    "text", ["{", "[]", "3", '{"x": nothing}', "[" * 100_000, f'{{"x":{1 << 62}}}']
)
def test_malformed_table_is_refused(text: str) -> None:
    with pytest.raises(ProtocolBroken, match="'a'"):
        read(piece(text, last=True), Reply(is_end=True))


def test_endless_table_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reader, "TABLE_BYTES_MAX", 1000)
    with pytest.raises(ProtocolBroken, match="over 1000 bytes"):
        read(*[piece("x" * 300) for _ in range(5)])
