import asyncio

import pytest

from ternmq_model.errors import BrokerBusy, InvalidParameter
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import CONFIG, Client, membership, serving, world

Tokens = dict[tuple[str, int], int]


async def lock(client: Client, who: str, *queues: tuple[str, int, int], group: str = "G") -> Tokens:
    request = groups.LockQueuesRequest(
        group=group,
        client_id=who,
        queues=[
            groups.QueueLock(topic=topic, queue_id=queue_id, token=token)
            for topic, queue_id, token in queues
        ],
    )
    reply: groups.LockQueuesReply = await client.call(service_methods.LOCK_QUEUES, request)
    assert reply.lease_ms == CONFIG.lock_lease_ms
    return {(each.topic, each.queue_id): each.token for each in reply.locked}


async def unlock(client: Client, who: str, topic: str, queue_id: int, token: int) -> None:
    queue = groups.QueueLock(topic=topic, queue_id=queue_id, token=token)
    request = groups.UnlockQueuesRequest(group="G", client_id=who, queues=[queue])
    await client.call(service_methods.UNLOCK_QUEUES, request)


async def commit(client: Client, offset: int, token: int = 0) -> groups.CommitOffsetsReply:
    told = groups.QueueOffset(topic="A", queue_id=0, offset=offset, lock_token=token)
    request = groups.CommitOffsetsRequest(group="G", client_id="x@1", offsets=[told])
    reply: groups.CommitOffsetsReply = await client.call(service_methods.COMMIT_OFFSETS, request)
    return reply


def test_queue_lock_has_one_holder_until_unlocked() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            mine = await lock(client, "a@1", ("A", 0, 0), ("A", 1, 0))
            assert list(mine) == [("A", 0), ("A", 1)]
            assert await lock(client, "b@1", ("A", 0, 0)) == {}
            await unlock(client, "a@1", "A", 0, mine["A", 0])
            theirs = await lock(client, "b@1", ("A", 0, 0), ("A", 1, 0))
            assert theirs["A", 0] > mine["A", 1]
            assert list(theirs) == [("A", 0)]

    run_in_virtual_time(main())


def test_locks_of_missing_queues_are_not_given() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            asked = ("A", 2, 0), ("A", -1, 0), ("Nothing", 0, 0), ("A@G", 0, 0)
            assert await lock(client, "a@1", *asked) == {}

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("group", "who"), [("G@T", "a@1"), ("", "a@1"), ("G", ""), ("G", "a\n1"), ("G", "a" * 256)]
)
def test_illegal_names_lock_nothing(group: str, who: str) -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            with pytest.raises(InvalidParameter):
                await lock(client, who, ("A", 0, 0), group=group)

    run_in_virtual_time(main())


def test_lock_lasts_for_its_lease_and_longer_when_renewed() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            token = (await lock(client, "a@1", ("A", 0, 0)))["A", 0]
            await asyncio.sleep(20)
            assert await lock(client, "a@1", ("A", 0, token)) == {("A", 0): token}
            await asyncio.sleep(29)
            assert await lock(client, "b@1", ("A", 0, 0)) == {}
            await asyncio.sleep(2)
            assert await lock(client, "b@1", ("A", 0, 0)) != {}
            assert await lock(client, "a@1", ("A", 0, token)) == {}

    run_in_virtual_time(main())


def test_lock_ends_with_its_holders_session() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            goodbye = groups.SessionRequest(goodbye=groups.Goodbye())
            first, _welcome = await client.open_session("a@1", membership("G", "A"))
            await lock(client, "a@1", ("A", 0, 0))
            await first.write(goodbye)
            await asyncio.sleep(0.1)
            second, _welcome = await client.open_session("b@1", membership("G", "A"))
            assert await lock(client, "b@1", ("A", 0, 0)) != {}
            second.cancel()
            await asyncio.sleep(9)
            assert await lock(client, "c@1", ("A", 0, 0)) == {}
            await asyncio.sleep(2)
            assert await lock(client, "c@1", ("A", 0, 0)) != {}

    run_in_virtual_time(main())


def test_client_with_broken_session_gets_no_locks_until_reopened() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            session, _welcome = await client.open_session("a@1", membership("G", "A"))
            token = (await lock(client, "a@1", ("A", 0, 0)))["A", 0]
            session.cancel()
            await asyncio.sleep(8)
            # Were it renewed now, its holder would trust it beyond the end of the Session.
            with pytest.raises(BrokerBusy, match="Session of 'a@1' is broken"):
                await lock(client, "a@1", ("A", 0, token))
            await client.open_session("a@1", membership("G", "A"))
            assert await lock(client, "a@1", ("A", 0, token)) == {("A", 0): token}

    run_in_virtual_time(main())


def test_member_leaving_one_group_returns_its_queues() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            both = membership("G", "A"), membership("H", "A")
            session, _welcome = await client.open_session("a@1", *both)
            token = (await lock(client, "a@1", ("A", 0, 0), group="H"))["A", 0]
            await lock(client, "a@1", ("A", 0, 0))
            beat = groups.Heartbeat(consumer_groups=[membership("H", "A")])
            await session.write(groups.SessionRequest(heartbeat=beat))
            await asyncio.sleep(0.1)
            assert await lock(client, "b@1", ("A", 0, 0)) != {}
            assert await lock(client, "a@1", ("A", 0, token), group="H") != {}

    run_in_virtual_time(main())


def test_commits_under_a_stale_lock_are_refused() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            for _ in range(5):
                await client.send("A")
            first = (await lock(client, "a@1", ("A", 0, 0)))["A", 0]
            assert not (await commit(client, 1, first)).refused
            (refused,) = (await commit(client, 2)).refused
            assert refused.status.code == Code.NO_PERMISSION
            await asyncio.sleep(31)
            second = (await lock(client, "b@1", ("A", 0, 0)))["A", 0]
            (refused,) = (await commit(client, 3, first)).refused
            assert refused.status.code == Code.NO_PERMISSION
            assert f"token {first} is stale, 'b@1' holds it" in refused.status.remark
            assert refused.offset == 1
            assert not (await commit(client, 4, second)).refused

    run_in_virtual_time(main())


def test_tokens_rise_across_restarts_and_old_ones_are_refused() -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await client.send("A")
                before = (await lock(client, "a@1", ("A", 0, 0)))["A", 0]
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                (refused,) = (await commit(client, 1, before)).refused
                assert refused.status.code == Code.NO_PERMISSION
                assert await lock(client, "a@1", ("A", 0, before)) == {}
                assert (await lock(client, "a@1", ("A", 0, 0)))["A", 0] > before
                await client.connection.close()

    run_in_virtual_time(main())


def test_deleted_topic_drops_its_locks() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            token = (await lock(client, "a@1", ("A", 0, 0)))["A", 0]
            await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic="A"))
            await client.put_topic("A", 1)
            assert await lock(client, "a@1", ("A", 0, token)) == {}
            assert await lock(client, "b@1", ("A", 0, 0)) != {}

    run_in_virtual_time(main())
