"""Lives of messages on a simulated cluster, as an administrator is told about them."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.explain.fact_search import find_by_key, find_facts
from ternmq_client.admin.explain.group_progress import GroupState
from ternmq_client.admin.explain.story import MessageStory, story_of
from ternmq_client.config import ClientConfig
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import MessageNotFound, Unreachable, UsageError
from ternmq_model.group_settings import GroupSettings
from ternmq_model.message import Message, SendResult
from ternmq_model.route import TopicConfig
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import Expression, sql
from ternmq_model.transaction import Resolution
from ternmq_producer.transactions.transaction_producer import TransactionProducer
from ternmq_protos.v1 import admin_pb2
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.shared_users import shared, started
from tests.support.simulated_cluster import (
    CLUSTER_STORE,
    NAMESERVER,
    SimulatedCluster,
    simulated_cluster,
)
from tests.support.slow_jobs import slow_jobs
from tests.support.users import authorization_of

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
TRACED = ClientConfig(nameservers=(NAMESERVER,), trace=True)


@asynccontextmanager
async def consuming(
    cluster: SimulatedCluster,
    group: str,
    *,
    fails: int = 0,
    wants: str | Expression = "*",
    config: PushConsumerConfig = FIRST,
    client: ClientConfig | None = None,
) -> AsyncGenerator[list[StoredMessage]]:
    """Run a consumer of `orders` that fails so often, and yield what it gets."""
    got: list[StoredMessage] = []

    async def take(message: StoredMessage) -> bool:
        got.append(message)
        return len(got) > fails

    consumer = PushConsumer(
        group,
        {"orders": wants},
        listener=take,
        config=config,
        client=client or ClientConfig(nameservers=(NAMESERVER,)),
        env=cluster.environment(f"consumer-{group}"),
    )
    async with consumer:
        yield got


async def send(cluster: SimulatedCluster, *messages: Message) -> list[SendResult]:
    """Send messages to one queue of `orders`, in order."""
    await cluster.put_topic("orders", 1)
    async with cluster.producer() as producer:
        return [await producer.send(one) for one in messages]


async def told(
    cluster: SimulatedCluster,
    message_id: str,
    *,
    groups: Collection[str] = (),
    producer_groups: Collection[str] = (),
) -> MessageStory:
    async with AdminClient(nameserver=NAMESERVER, env=cluster.environment("tool")) as admin:
        facts = await find_facts(
            admin,
            message_id,
            asked_at_ms=cluster.now_ms(),
            groups=groups,
            producer_groups=producer_groups,
        )
    return story_of(facts)


def states(story: MessageStory) -> dict[str, GroupState]:
    return {one.group: one.state for one in story.groups}


def has(lines: Collection[str], *parts: str) -> bool:
    return any(all(part in line for part in parts) for line in lines)


def test_sent_message_is_stored_readable_and_of_no_group() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            (sent,) = await send(cluster, Message("orders", b"x"))
            await asyncio.sleep(1)
            story = await told(cluster, sent.message_id)
            assert story.topics == ("orders",)
            assert has([one.text for one in story.events], "stored in orders queue 0 on a")
            assert has(story.storage, "consumers can read it")
            assert has(story.storage, "not replicated")
            assert not story.groups
            assert story == await told(cluster, sent.offset_message_id)
            assert states(await told(cluster, sent.message_id, groups=["G"])) == {
                "G": GroupState.UNSUBSCRIBED
            }

    run_in_virtual_time(main())


def test_message_is_done_for_one_group_and_waits_for_another_or_is_filtered() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            (sent,) = await send(
                cluster, Message("orders", b"x", tags="new", properties={"n": "3"})
            )
            async with (
                consuming(cluster, "done") as got,
                consuming(cluster, "tags", wants="old"),
                consuming(cluster, "few", wants=sql("n > 5")),
                consuming(cluster, "many", wants=sql("n > 2")) as many,
                consuming(cluster, "stuck", fails=99) as stuck,
            ):
                while not (got and many and stuck):
                    await asyncio.sleep(1)
                await asyncio.sleep(30)
                story = await told(cluster, sent.message_id)
            assert states(story) == {
                "done": GroupState.DONE,
                "few": GroupState.FILTERED,
                "many": GroupState.DONE,
                "stuck": GroupState.RETRYING,
                "tags": GroupState.FILTERED,
            }
            (few,) = [one for one in story.groups if one.group == "few"]
            assert has(few.evidence, "SQL92 'n > 5' excludes it")
            named = await told(cluster, sent.message_id, groups=["done", "nobody", "a refused one"])
            assert states(named) == {
                "a refused one": GroupState.UNKNOWN,
                "done": GroupState.DONE,
                "nobody": GroupState.UNSUBSCRIBED,
            }
            assert has(named.unknown, "consumer group a refused one: ")

    run_in_virtual_time(main())


def test_retried_message_is_done_with_its_failures_counted() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            (sent,) = await send(cluster, Message("orders", b"x"))
            async with consuming(cluster, "G", fails=2) as got:
                while len(got) < 3:
                    await asyncio.sleep(1)
                await asyncio.sleep(30)
            story = await told(cluster, sent.message_id)
            (group,) = story.groups
            assert group.state is GroupState.DONE
            assert has(group.evidence, "2 deliveries failed")

    run_in_virtual_time(main())


@pytest.mark.parametrize("to_group", [False, True])
def test_dead_letter_is_dead_until_it_is_sent_again(to_group: bool) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            (sent,) = await send(cluster, Message("orders", b"x"))
            config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, retries_max=1)
            async with consuming(cluster, "G", fails=9, config=config) as got:
                while len(got) < 2:
                    await asyncio.sleep(1)
                await asyncio.sleep(10)
            story = await told(cluster, sent.message_id)
            (group,) = story.groups
            assert group.state is GroupState.DEAD
            assert has(group.evidence, "2 deliveries failed")
            assert has(group.evidence, "waits for a redrive")
            async with AdminClient(nameserver=NAMESERVER, env=cluster.environment("x")) as admin:
                (new,) = await admin.redrive("G", to_group=to_group)
            await asyncio.sleep(1)
            story = await told(cluster, sent.message_id)
            assert has(story.groups[0].evidence, "sent again", new.new_message_id)
            async with consuming(cluster, "G", fails=9, config=config) as got:
                while len(got) < 2:
                    await asyncio.sleep(1)
            again = await told(cluster, sent.message_id)
            assert again.events == story.events, "a retry of the new message is no redrive"
            place = "%RETRY%G" if to_group else "orders"
            assert has([one.text for one in again.events], f"sent again to {place} as")
            new_story = await told(cluster, new.new_message_id)
            assert states(new_story) == {"G": GroupState.DEAD}
            assert not has(new_story.unknown, "is gone")

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_timed", [False, True])
def test_delayed_message_waits_until_its_time(is_timed: bool) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            at_ms = cluster.now_ms() + 60_000
            timed = Message("orders", b"x", deliver_at_ms=at_ms)
            delayed = Message("orders", b"x", delay_level=5)
            (sent,) = await send(cluster, timed if is_timed else delayed)
            async with consuming(cluster, "G"):
                await asyncio.sleep(10)
                story = await told(cluster, sent.message_id)
            assert states(story) == {"G": GroupState.UNKNOWN}, "a group that knows the topic"
            assert story.topics == ("orders",)
            assert has(story.storage, "waits for orders until")
            await asyncio.sleep(70)
            story = await told(cluster, sent.message_id)
            assert not has(story.storage, "waits for orders")
            assert has(story.storage, "consumers can read it")

    run_in_virtual_time(main())


@pytest.mark.parametrize("resolution", Resolution)
def test_transaction_is_open_committed_or_rolled_back(resolution: Resolution) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            await cluster.put_topic("orders", 1)

            async def execute(_: Message, __: object) -> Resolution:
                return resolution

            async def check(_: StoredMessage) -> Resolution:
                return resolution

            async with TransactionProducer(
                "payers",
                execute=execute,
                check=check,
                topics=("orders",),
                nameserver=NAMESERVER,
                env=cluster.environment("producer"),
            ) as producer:
                result = await producer.send(Message("orders", b"x"))
                await asyncio.sleep(200)
                story = await told(cluster, result.sent.message_id)
            lines = {
                Resolution.UNKNOWN: ("half message on a", "payers", "asked"),
                Resolution.ROLLBACK: ("rolled back on a", "payers"),
                Resolution.COMMIT: ("consumers can read it",),
            }
            assert has(story.storage, *lines[resolution])
            if resolution is Resolution.COMMIT:
                text = "committed by producer group payers"
                assert has([one.text for one in story.events], text)
            if resolution is Resolution.ROLLBACK:
                with pytest.raises(MessageNotFound, match="unknown producer group"):
                    await told(cluster, result.sent.message_id)
                named = await told(
                    cluster, result.sent.message_id, producer_groups=["payers", "others"]
                )
                assert named.storage == story.storage

    run_in_virtual_time(main())


def test_slave_has_the_message_or_lacks_it() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            await cluster.start("a-1")
            await asyncio.sleep(5)
            (sent,) = await send(cluster, Message("orders", b"x"))
            await asyncio.sleep(5)
            story = await told(cluster, sent.message_id)
            assert has(story.storage, "slave 1 of a has it safely")

    run_in_virtual_time(main())


def test_trace_proves_that_a_listener_finished_the_message() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"], trace_topic_enabled=True) as cluster:
            await cluster.put_topic("orders", 1)
            async with cluster.producer(client=TRACED) as producer:
                sent = await producer.send(Message("orders", b"x"))
                async with consuming(cluster, "G", client=TRACED) as got:
                    while not got:
                        await asyncio.sleep(1)
            await asyncio.sleep(20)
            story = await told(cluster, sent.message_id)
            assert states(story) == {"G": GroupState.CONSUMED}
            assert has([one.text for one in story.events], "trace: sent to orders")

    run_in_virtual_time(main())


def test_unknown_message_is_refused_with_what_that_may_mean() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            (sent,) = await send(cluster, Message("orders", b"x"))
            with pytest.raises(MessageNotFound, match="no broker knows message nobody"):
                await told(cluster, "nobody")
            beyond = f"{int(sent.offset_message_id, 16) + (1 << 30):032X}"
            with pytest.raises(MessageNotFound, match=r"logs end at \d+ on a"):
                await told(cluster, beyond)

    run_in_virtual_time(main())


def test_key_of_several_messages_names_their_ids() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            sent = await send(
                cluster,
                Message("orders", b"x", keys=("k", "one")),
                Message("orders", b"y", keys=("k",)),
            )
            await asyncio.sleep(1)
            async with AdminClient(nameserver=NAMESERVER, env=cluster.environment("t")) as admin:
                assert await find_by_key(admin, "orders", "one") == sent[0].message_id
                newest = ", ".join(one.message_id for one in reversed(sent))
                with pytest.raises(UsageError, match=newest):
                    await find_by_key(admin, "orders", "k")

    run_in_virtual_time(main())


def test_retention_leaves_dead_letters_of_a_message_and_refuses_its_place() -> None:
    async def main() -> None:
        store = replace(CLUSTER_STORE, commit_log_file_bytes=64 << 10, file_reserved_hours=1)
        async with simulated_cluster(brokers=["a"], store=store) as cluster:
            (sent,) = await send(cluster, Message("orders", b"x"))
            master = await cluster.connect("a")
            await master.put_topic("T", 1)
            for _ in range(20):
                await master.send("T", bytes(8000))
            with slow_jobs():
                await asyncio.sleep(1.1 * 3600)
            config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, retries_max=0)
            async with consuming(cluster, "G", fails=9, config=config) as got:
                while not got:
                    await asyncio.sleep(1)
                await asyncio.sleep(5)
            await master.call(service_methods.CLEAN_STORE, admin_pb2.CleanStoreRequest())
            await master.connection.close()
            story = await told(cluster, sent.message_id)
            assert story.topics == ("orders",)
            assert states(story) == {"G": GroupState.DEAD}
            assert has(story.unknown, "is gone, by retention or with its topic")
            with pytest.raises(MessageNotFound, match=r"retention has removed log offset 0"):
                await told(cluster, sent.offset_message_id)

    run_in_virtual_time(main())


def test_expired_message_of_a_topic_is_expired_for_a_late_group() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            (sent,) = await send(cluster, Message("orders", b"x"))
            async with AdminClient(nameserver=NAMESERVER, env=cluster.environment("t")) as admin:
                await admin.put_group(GroupSettings("late"))
                await admin.reset_offsets("late", "orders", first=True)
                await admin.create_topic(TopicConfig("orders", 1, 1, retention_ms=3_600_000))
            await asyncio.sleep(1)
            assert states(await told(cluster, sent.message_id)) == {"late": GroupState.WAITING}
            with slow_jobs():
                await asyncio.sleep(2 * 3600)
            async with cluster.producer() as producer:
                await producer.send(Message("orders", b"y"))
            await asyncio.sleep(30)
            story = await told(cluster, sent.message_id)
            assert states(story) == {"late": GroupState.EXPIRED}
            assert has(story.storage, "it has expired, its queue begins at 1")

    run_in_virtual_time(main())


def test_user_is_told_what_it_may_not_see() -> None:
    async def main() -> None:
        async with shared() as world:
            world.around.config = replace(world.around.config, hostname="broker")
            world.users.add("boss", "admin cluster", "subscribe topic:orders")
            await started(world)
            client = await world.client("broker", "shop")
            await client.send("orders", b"x", properties={"UNIQ_KEY": "KEY"})
            await asyncio.sleep(1)
            stories: dict[str, MessageStory] = {}
            for user in ("shop", "boss"):
                network = world.around.network.host(f"tool-{user}")
                network.authorization = authorization_of(user)
                env = world.around.environment(f"tool-{user}")
                async with AdminClient(nameserver="ns1:9876", env=env) as admin:
                    found = await find_facts(admin, "KEY", asked_at_ms=env.clock.wall_ms())
                    stories[user] = story_of(found)
            assert has(stories["shop"].storage, "consumers can read it")
            assert has(stories["shop"].unknown, "that you may not see are left out")
            for what in ("delayed copies", "replication of broker", "traces in"):
                assert has(stories["shop"].unknown, what, "user 'shop' may not")
                assert not has(stories["boss"].unknown, what)

    run_in_virtual_time(main())


def test_broker_without_an_index_finds_the_record_and_says_what_it_lacks() -> None:
    async def main() -> None:
        store = replace(CLUSTER_STORE, index_enabled=False)
        async with simulated_cluster(brokers=["a"], store=store) as cluster:
            (sent,) = await send(cluster, Message("orders", b"x"))
            await asyncio.sleep(1)
            story = await told(cluster, sent.offset_message_id)
            assert story.message_id == sent.message_id
            assert has(story.storage, "consumers can read it")
            assert has(story.unknown, "its copies are not found by its id")
            with pytest.raises(MessageNotFound):
                await told(cluster, sent.message_id)

    run_in_virtual_time(main())


def test_broker_that_is_away_is_named_beside_the_answers_of_others() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster:
            (sent,) = await send(cluster, Message("orders", b"x"))
            await asyncio.sleep(1)
            away = "b" if sent.queue.broker_name == "a" else "a"
            cluster.kill(away)
            async with AdminClient(nameserver=NAMESERVER, env=cluster.environment("t")) as admin:
                found = await find_facts(admin, sent.message_id, asked_at_ms=cluster.now_ms())
                assert {one.broker_name for one in found.unreachable} == {away}
                assert len(found.records) == 1
                with pytest.raises(Unreachable, match=f"broker {away}"):
                    await find_facts(admin, "nobody", asked_at_ms=cluster.now_ms())

    run_in_virtual_time(main())
