import asyncio
from functools import partialmethod
from typing import Any

import pytest

from ternmq_broker.state.clients import ClientTable
from ternmq_broker.state.offset_versions import VERSION_MAX, VERSION_STEP_MAX
from ternmq_model.errors import BrokerBusy, InvalidParameter, RefusedError
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, SessionStream, membership, serving, world


async def members(client: Client, group: str = "G") -> list[str]:
    reply = await client.call(service_methods.LIST_MEMBERS, groups.ListMembersRequest(group=group))
    return list(reply.client_ids)


async def command(session: SessionStream) -> str:
    """Return the group whose members changed."""
    reply = await session.read()
    assert reply is not None
    return reply.members_changed.group


async def heartbeat(session: SessionStream, *memberships: groups.ConsumerGroup) -> None:
    beat = groups.Heartbeat(consumer_groups=memberships)
    await session.write(groups.SessionRequest(heartbeat=beat))


async def commit(
    client: Client, *offsets: tuple[str, int, int], group: str = "G", force: bool = False
) -> groups.CommitOffsetsReply:
    request = groups.CommitOffsetsRequest(
        group=group,
        force=force,
        offsets=[
            groups.QueueOffset(topic=topic, queue_id=queue_id, offset=offset)
            for topic, queue_id, offset in offsets
        ],
    )
    reply: groups.CommitOffsetsReply = await client.call(service_methods.COMMIT_OFFSETS, request)
    return reply


async def query(client: Client, topic: str, queue_id: int = 0, group: str = "G") -> int:
    request = groups.QueryOffsetRequest(group=group, topic=topic, queue_id=queue_id)
    reply: groups.QueryOffsetReply = await client.call(service_methods.QUERY_OFFSET, request)
    return reply.offset


def test_members_are_notified_at_once_of_joins_and_goodbyes() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            loop = asyncio.get_running_loop()
            first, welcome = await client.open_session("a@1", membership("G", "T"))
            assert welcome.status.code == Code.SUCCESS
            assert await command(first) == "G"
            began_s = loop.time()
            second, _welcome = await client.open_session("b@1", membership("G", "T"))
            assert await command(first) == "G"
            assert await command(second) == "G"
            assert await members(client) == ["a@1", "b@1"]
            await second.write(groups.SessionRequest(goodbye=groups.Goodbye()))
            assert await command(first) == "G"
            assert await members(client) == ["a@1"]
            assert await second.read() is None
            assert loop.time() - began_s < 0.1

    run_in_virtual_time(main())


def test_broken_stream_is_gone_after_10_s() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            first, _welcome = await client.open_session("a@1", membership("G", "T"))
            second, _welcome = await client.open_session("b@1", membership("G", "T"))
            second.cancel()
            await asyncio.sleep(9)
            assert await members(client) == ["a@1", "b@1"]
            await asyncio.sleep(2.1)
            assert await members(client) == ["a@1"]
            assert [await command(first) for _ in range(2)] == ["G", "G"]

    run_in_virtual_time(main())


def test_silent_client_is_gone_after_60_s_and_its_stream_ends() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            loop = asyncio.get_running_loop()
            session, _welcome = await client.open_session("a@1", membership("G", "T"))
            await asyncio.sleep(30)
            await heartbeat(session, membership("G", "T"))
            heard_s = loop.time()
            assert await command(session) == "G"
            assert await session.read() is None
            assert 60 <= loop.time() - heard_s < 62
            assert await members(client) == []

    run_in_virtual_time(main())


def test_same_client_replaces_its_stream_and_another_one_is_refused() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            old, _welcome = await client.open_session("a@1", membership("G", "T"))
            assert await command(old) == "G"
            _new, welcome = await client.open_session("a@1", membership("G", "T"))
            assert welcome.status.code == Code.SUCCESS
            assert await old.read() is None
            other, welcome = await client.open_session("a@1", incarnation="2")
            assert welcome.status.code == Code.INVALID_PARAMETER
            assert "'a@1' is in use at " in welcome.status.remark
            assert await other.read() is None
            await asyncio.sleep(20)
            assert await members(client) == ["a@1"]

    run_in_virtual_time(main())


def test_killed_client_gives_way_to_its_successor_at_once() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            other, _welcome = await client.open_session("b@1", membership("G", "T"))
            killed, _welcome = await client.open_session(
                "a@1", membership("G", "T"), membership("H", "T")
            )
            assert [await command(other) for _ in range(2)] == ["G", "G"]
            killed.cancel()
            await asyncio.sleep(0.1)
            _, welcome = await client.open_session("a@1", membership("G", "T"), incarnation="2")
            assert welcome.status.code == Code.SUCCESS
            assert await command(other) == "G"
            assert await members(client) == ["a@1", "b@1"]
            assert await members(client, "H") == []
            await asyncio.sleep(20)
            assert await members(client) == ["a@1", "b@1"]

    run_in_virtual_time(main())


def test_heartbeat_changes_the_groups() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            session, _welcome = await client.open_session("a@1")
            assert await members(client) == []
            await heartbeat(session, membership("G", "T"), membership("H", "T"))
            assert {await command(session), await command(session)} == {"G", "H"}
            await heartbeat(session, membership("H", "T"))
            await asyncio.sleep(0.1)
            assert await members(client) == []
            assert await members(client, "H") == ["a@1"]

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("hello", "says"),
    [
        (groups.Hello(client_id="", incarnation="1"), "client_id"),
        (groups.Hello(client_id="a\n", incarnation="1"), "client_id"),
        (groups.Hello(client_id="x" * 256, incarnation="1"), "client_id"),
        (groups.Hello(client_id="a", incarnation=""), "incarnation"),
        (
            groups.Hello(client_id="a", incarnation="1", consumer_groups=[membership("no good")]),
            "'no good'",
        ),
        (
            groups.Hello(client_id="a", incarnation="1", consumer_groups=[membership("G", "../T")]),
            r"'\.\./T'",
        ),
        (
            groups.Hello(client_id="a", incarnation="1", producer_groups=["no good"]),
            "'no good'",
        ),
        (None, "begins with `hello`"),
    ],
)
def test_bad_hello_is_refused_with_its_fault(hello: groups.Hello | None, says: str) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            stream: SessionStream = client.connection.open(service_methods.SESSION)
            goodbye = groups.SessionRequest(goodbye=groups.Goodbye())
            await stream.write(goodbye if hello is None else groups.SessionRequest(hello=hello))
            with pytest.raises(RefusedError, match=says) as caught:
                await stream.read()
            assert caught.value.code == Code.INVALID_PARAMETER
            assert await members(client) == []

    run_in_virtual_time(main())


def test_unreadable_heartbeat_ends_the_stream_with_its_fault() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            session, _welcome = await client.open_session("a@1")
            await heartbeat(session, membership("no good"))
            with pytest.raises(RefusedError, match="no good"):
                await session.read()
            _, welcome = await client.open_session("a@1")
            assert welcome.status.code == Code.SUCCESS

    run_in_virtual_time(main())


def test_offsets_are_kept_and_lower_ones_refused_unless_forced() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            for _ in range(5):
                await client.send("A", queue_id=0)
            reply = await commit(client, ("A", 0, 4), ("A", 1, 0))
            assert reply.status.code == Code.SUCCESS
            reply = await commit(client, ("A", 0, 2), ("A", 1, 0))
            assert reply.status.code == Code.INVALID_PARAMETER
            assert "4 is stored, not 2" in reply.status.remark
            assert [(each.queue_id, each.offset) for each in reply.refused] == [(0, 4)]
            assert reply.refused[0].status.code == Code.PULL_OFFSET_MOVED
            reply = await commit(client, ("A", 0, 2), force=True)
            assert not reply.refused
            assert await query(client, "A") == 2

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("offset", "says"),
    [
        (("Unknown", 0, 0), "'Unknown' does not exist"),
        (("A", 2, 0), "queues 0 to 1, not 2"),
        (("A", -1, 0), "not -1"),
        (("A", 0, 2), "ends at 1; 2 is outside"),
        (("A", 0, -1), "-1 is outside"),
    ],
)
def test_impossible_offset_is_refused_and_the_others_are_kept(
    offset: tuple[str, int, int], says: str
) -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            await client.send("A", queue_id=0)
            reply = await commit(client, offset, ("A", 1, 0))
            assert says in reply.status.remark
            assert [each.offset for each in reply.refused] == [-1]
            is_unknown = offset[0] == "Unknown"
            code = Code.TOPIC_NOT_EXIST if is_unknown else Code.INVALID_PARAMETER
            assert reply.refused[0].status.code == code
            assert await query(client, "A", 1) == 0

    run_in_virtual_time(main())


def test_illegal_group_commits_nothing() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            reply = await commit(client, ("A", 0, 0), group="no good")
            assert reply.status.code == Code.INVALID_PARAMETER
            assert "'no good'" in reply.status.remark
            assert not reply.refused

    run_in_virtual_time(main())


def test_new_group_begins_at_the_first_message_while_it_is_in_memory() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, memory_bytes=10_000) as (_, client):
            assert await query(client, "A") == 0
            await client.send("A")
            assert await query(client, "A") == 0
            await client.send("A", bytes(5_000))
            assert await query(client, "A") == -1
            assert await query(client, "Unknown") == -1

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        (service_methods.LIST_MEMBERS, groups.ListMembersRequest(group="no good")),
        (service_methods.QUERY_OFFSET, groups.QueryOffsetRequest(group="no good", topic="A")),
        (service_methods.QUERY_OFFSET, groups.QueryOffsetRequest(group="G", topic="no good")),
        (
            service_methods.QUERY_OFFSET,
            groups.QueryOffsetRequest(group="G", topic="A", queue_id=-1),
        ),
    ],
)
def test_bad_names_and_numbers_are_refused(rpc: Any, request_: Any) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            with pytest.raises(InvalidParameter):
                await client.call(rpc, request_)

    run_in_virtual_time(main())


async def commit_version(
    client: Client, offset: int, version: int, *, force: bool = False
) -> groups.CommitOffsetsReply:
    told = groups.QueueOffset(topic="A", queue_id=0, offset=offset, version=version)
    request = groups.CommitOffsetsRequest(group="G", offsets=[told], force=force)
    reply: groups.CommitOffsetsReply = await client.call(service_methods.COMMIT_OFFSETS, request)
    return reply


def test_commit_older_than_a_seek_is_refused_even_after_a_crash() -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                for _ in range(5):
                    await client.send("A")
                await commit_version(client, 4, 0)
                reply = await commit_version(client, 1, 0, force=True)
                (kept,) = reply.kept
                assert (kept.offset, kept.version) == (1, 1)
                path = around.config.data / "config" / "offsetVersions.json"
                at_the_answer = around.files.nodes[path].data.copy()
                await client.connection.close()
            around.files.nodes[path].data = at_the_answer
            async with around.broker() as broker:
                client = await around.connect(broker)
                (refused,) = (await commit_version(client, 5, 0)).refused
                assert refused.version == 1
                assert refused.status.code == Code.PULL_OFFSET_MOVED
                assert "of version 1 is stored, not one of 0" in refused.status.remark
                assert not (await commit_version(client, 5, 1)).refused
                request = groups.QueryOffsetRequest(group="G", topic="A", queue_id=0)
                told = await client.call(service_methods.QUERY_OFFSET, request)
                assert (told.offset, told.version) == (5, 1)
                await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("version", [VERSION_STEP_MAX + 1, VERSION_MAX])
@pytest.mark.parametrize("force", [False, True])
def test_made_up_version_of_an_offset_is_refused_and_broker_starts_again(
    version: int, *, force: bool
) -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await client.send("A")
                await commit_version(client, 1, 0)
                (refused,) = (await commit_version(client, 1, version, force=force)).refused
                assert refused.status.code == Code.INVALID_PARAMETER
                assert f"no version is {version}; 0 is stored" in refused.status.remark
                (kept,) = (await commit_version(client, 0, 0, force=True)).kept
                assert (kept.offset, kept.version) == (0, 1)
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                assert not (await commit_version(client, 1, 1)).refused
                await client.connection.close()

    run_in_virtual_time(main())


def test_begin_of_a_group_is_told_only_once_it_is_on_disk() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            await client.send("A")
            await asyncio.sleep(20)
            around.sync_s = 3.0
            calls = [commit(client, ("A", 0, 1)), commit(client, ("A", 0, 1)), query(client, "A")]
            answers = [asyncio.ensure_future(call) for call in calls]
            answers.append(asyncio.ensure_future(commit(client, ("A", 0, 0))))
            await asyncio.sleep(2.5)
            assert not any(answer.done() for answer in answers)
            await asyncio.gather(*answers)
            path = around.config.data / "config" / "consumerOffset.json"
            assert b'"A@G"' in around.files.nodes[path].data.tobytes()
            began_s = asyncio.get_running_loop().time()
            assert await query(client, "A") == 1
            assert asyncio.get_running_loop().time() - began_s < 1.0

    run_in_virtual_time(main())


def test_impossible_version_is_refused() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            for version in (-1, 1 << 62):
                (refused,) = (await commit_version(client, 0, version)).refused
                assert refused.status.code == Code.INVALID_PARAMETER

    run_in_virtual_time(main())


def test_client_whose_hello_is_refused_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    small = partialmethod(ClientTable.__init__, bytes_max=4_096)
    monkeypatch.setattr(ClientTable, "__init__", small)

    async def main() -> None:
        async with serving() as (_, client):
            large = membership("H", *(f"T{number}" for number in range(9)))
            for number in range(9):
                with pytest.raises(BrokerBusy):
                    await client.open_session(f"{number}@1", large)
            session, _ = await client.open_session("a@1", membership("G", "T"))
            assert await command(session) == "G"

    run_in_virtual_time(main())


def test_subscriptions_that_would_fill_the_broker_are_refused_and_others_go_on() -> None:
    def hostile() -> groups.ConsumerGroup:
        told = membership("H")
        for number in range(1_050):
            told.subscriptions.add(topic=f"T{number}", expression="x" * 4_000)
        return told

    async def main() -> None:
        async with serving() as (_, client):
            session, _ = await client.open_session("a@1", membership("G", "T"))
            assert await command(session) == "G"
            with pytest.raises(BrokerBusy, match="clients, groups and subscriptions do not fit"):
                await client.open_session("b@1", hostile())
            assert await members(client, "H") == []
            other, _ = await client.open_session("b@1", membership("H", "T"))
            assert await command(other) == "H"
            await heartbeat(other, hostile())
            with pytest.raises(BrokerBusy):
                await other.read()
            assert await members(client) == ["a@1"]
            await client.open_session("c@1", membership("G", "T"))
            assert await command(session) == "G"

    run_in_virtual_time(main())
