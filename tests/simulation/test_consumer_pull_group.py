"""Pull consumers that share queues, commit by themselves, pause and look times up."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from ternmq_consumer.config import PullConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_model.errors import ClosedError, ConfigError, RefusedError, UsageError
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC

AUTO = PullConsumerConfig(auto_commit=True)


def member(
    cluster: ToyCluster, host: str = "a", config: PullConsumerConfig | None = None, group: str = "g"
) -> PullConsumer:
    env = cluster.environment(host)
    return PullConsumer(group, nameserver=cluster.nameserver, config=config, env=env)


def in_cluster(test: Callable[[ToyCluster], Awaitable[None]], seed: int = 1) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2, queues=2, seed=seed) as cluster:
            await test(cluster)

    run_in_virtual_time(main())


class Told:
    """What the callbacks were called with."""

    def __init__(self) -> None:
        self.assigned: list[list[MessageQueue]] = []
        self.revoked: list[list[MessageQueue]] = []

    @property
    def callbacks(self) -> dict[str, Any]:
        return {"on_assigned": self.assigned.append, "on_revoked": self.revoked.append}


async def read(consumer: PullConsumer, count: int) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    async with asyncio.timeout(120):
        while len(found) < count:
            found += await consumer.poll()
    return found


def test_members_share_the_queues_and_are_notified_of_changes() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        queues, told, told_second = cluster.queues, Told(), Told()
        async with member(cluster, "a", AUTO) as first:
            await first.subscribe(TOPIC, **told.callbacks)
            await first.assigned()
            assert first.assignment() == queues
            assert {m.queue for m in await read(first, 40)} == set(queues)
            assert await first.poll(timeout_s=0) == [], "what was read is dealt with"
            async with member(cluster, "b", AUTO) as second:
                await second.subscribe({TOPIC: "*"}, **told_second.callbacks)
                await second.assigned()
                assert await first.poll(timeout_s=3) == []
                assert (first.assignment(), second.assignment()) == (queues[:2], queues[2:])
                cluster.fill(10)
                assert {m.queue for m in await read(first, 20)} == set(queues[:2])
                found = await read(second, 20)
                assert {m.queue for m in found} == set(queues[2:])
                assert {m.queue_offset for m in found} == set(range(10, 20)), "none came twice"
            await asyncio.sleep(3)
            assert first.assignment() == queues
        assert told.assigned == [queues, queues[2:]]
        assert told.revoked == [queues[2:], queues]
        assert told_second.assigned == told_second.revoked == [queues[2:]]
        # Left after the last poll: what it returned is not known to be dealt with.
        assert {cluster.committed("g", queue) for queue in queues[:2]} <= {10, 20}

    in_cluster(test)


def test_application_may_seek_before_a_new_queue_is_read() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        async with member(cluster) as consumer:

            async def begin_late(queues: list[MessageQueue]) -> None:
                await asyncio.sleep(2)
                for queue in queues:
                    consumer.seek(queue, 7)

            await consumer.subscribe(TOPIC, on_assigned=begin_late)
            found = await read(consumer, 12)
            assert {m.queue_offset for m in found} == {7, 8, 9}
            assert await consumer.commit()
            assert {cluster.committed("g", queue) for queue in cluster.queues} == {10}

    in_cluster(test)


def test_application_may_commit_before_a_queue_goes() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        async with member(cluster) as consumer:

            async def commit(queues: list[MessageQueue]) -> None:
                assert await consumer.poll(timeout_s=0) == []
                assert await consumer.commit()

            await consumer.subscribe(TOPIC, on_revoked=commit)
            await read(consumer, 40)
            assert {cluster.committed("g", queue) for queue in cluster.queues} == {0}
        assert {cluster.committed("g", queue) for queue in cluster.queues} == {10}

    in_cluster(test)


def test_queue_that_goes_is_not_read_though_its_callback_seeks() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        found: list[StoredMessage] = []
        async with member(cluster) as consumer:

            async def seek(queues: list[MessageQueue]) -> None:
                for queue in queues:
                    consumer.seek(queue, 5)
                await asyncio.sleep(1)
                found.extend(await consumer.poll(timeout_s=0))
                assert {consumer.position(queue) for queue in queues} == {5}
                assert await consumer.commit()

            await consumer.subscribe(TOPIC, on_revoked=seek)
            await read(consumer, 40)
        assert found == []
        assert {cluster.committed("g", queue) for queue in cluster.queues} == {5}

    in_cluster(test)


def test_callback_exception_is_raised_by_next_poll_and_reading_goes_on() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)

        def fail(queues: list[MessageQueue]) -> None:
            raise ValueError(f"cannot bear {len(queues)}")

        async with member(cluster) as consumer:
            await consumer.subscribe(TOPIC, on_assigned=fail)
            with pytest.raises(ValueError, match="cannot bear 4"):
                await read(consumer, 1)
            assert len(await read(consumer, 40)) == 40

    in_cluster(test)


def test_polls_commit_earlier_results_periodically() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        queue = cluster.queues[0]
        async with member(cluster, config=AUTO) as consumer:
            consumer.assign([queue])
            assert len(await consumer.poll(messages_max=4)) == 4
            await asyncio.sleep(6)
            assert cluster.committed("g", queue) == 0, "nobody has polled again"
            await consumer.poll(messages_max=3)
            await asyncio.sleep(1)
            assert cluster.committed("g", queue) == 4
            await consumer.poll(messages_max=1)
            await asyncio.sleep(1)
            assert cluster.committed("g", queue) == 4, "five seconds are not over"
        assert cluster.committed("g", queue) == 7, "the last poll's is not known to be dealt with"

    in_cluster(test)


def test_leaving_commits_nothing_below_the_applications_commit() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        queue = cluster.queues[0]
        async with member(cluster, config=AUTO) as consumer:
            consumer.assign([queue])
            await consumer.poll()
            assert await consumer.commit()
        assert cluster.committed("g", queue) == 10
        assert not cluster.first.groups.offsets.versions.changes

    in_cluster(test)


def test_paused_queue_is_not_polled_and_keeps_its_place() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        first, second = cluster.queues[0], cluster.queues[3]
        async with member(cluster, group="") as consumer:
            consumer.assign([first, second])
            assert len(await read(consumer, 20)) == 20
            consumer.pause(first, first)
            cluster.fill(5)
            assert consumer.paused() == [first]
            assert {m.queue for m in await read(consumer, 5)} == {second}
            assert await consumer.poll(timeout_s=20) == []
            assert consumer.position(first) == 10
            consumer.resume(first, second)
            assert consumer.paused() == []
            assert [m.queue_offset for m in await read(consumer, 5)] == [*range(10, 15)]
            consumer.pause(first)
            consumer.seek(first, 3)
            assert await consumer.poll() == []
            consumer.resume(first)
            assert [m.queue_offset for m in await read(consumer, 12)] == [*range(3, 15)]
            consumer.pause(second)
            consumer.assign([first])
            assert consumer.paused() == []

    in_cluster(test)


def test_offsets_are_found_by_time_and_sought() -> None:
    async def test(cluster: ToyCluster) -> None:
        broker = cluster.first
        first, second = cluster.queues[:2]
        for at_ms in (100, 200, 300):
            broker.append(0, b"body", stored_at_ms=at_ms)
            broker.append(1, b"body", stored_at_ms=at_ms + 50)
        async with member(cluster, group="") as consumer:
            times = {first: 200, second: 400}
            assert await consumer.offsets_for_times(times) == {first: 1, second: 3}
            assert await consumer.begin_offsets([first, second]) == {first: 0, second: 0}
            assert await consumer.end_offsets([first, second]) == {first: 3, second: 3}
            consumer.assign([first, second])
            await consumer.seek_to_time(240)
            assert [(m.queue, m.queue_offset) for m in await read(consumer, 3)] in (
                [(first, 2), (second, 1), (second, 2)],
                [(second, 1), (second, 2), (first, 2)],
            )
            await consumer.seek_to_time(0, second)
            assert consumer.position(second) == 0

    in_cluster(test)


def test_reset_moves_a_member_and_is_found_by_an_assigned_reader() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        broker, queue = cluster.first, cluster.queues[0]
        async with member(cluster) as consumer:
            await consumer.subscribe(TOPIC)
            await read(consumer, 40)
            await broker.groups.reset("g", queue, 4)
            assert [m.queue_offset for m in await read(consumer, 6)] == [*range(4, 10)]
            assert await consumer.commit()
            assert cluster.committed("g", queue) == 10
        async with member(cluster) as consumer:
            consumer.assign([queue])
            cluster.fill(1)
            await read(consumer, 1)
            await broker.groups.reset("g", queue, 2)
            assert not await consumer.commit()
            assert [m.queue_offset for m in await read(consumer, 9)] == [*range(2, 11)]
            assert await consumer.commit()
            assert cluster.committed("g", queue) == 11

    in_cluster(test)


def test_queue_reset_during_take_over_is_polled_from_reset_offset() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        broker, queue = cluster.first, cluster.queues[0]
        for one in cluster.queues:  # nothing is left to be read, or committed
            cluster.brokers[one.broker_name].groups.commit("g", one, 10)
        for step in range(80):
            async with member(cluster, f"host-{step}") as consumer:
                await consumer.subscribe(TOPIC)
                await asyncio.sleep(step * 0.0003)
                await broker.groups.reset("g", queue, 4)
                found = [m.queue_offset for m in await read(consumer, 6)]
                assert found == [*range(4, 10)], f"reset after {step * 0.3:.1f} ms"
                assert await consumer.commit()
            assert cluster.committed("g", queue) == 10

    in_cluster(test)


def test_recreated_topic_is_shared_again() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        told = Told()
        async with member(cluster, config=AUTO) as consumer:
            await consumer.subscribe(TOPIC, **told.callbacks)
            await read(consumer, 40)
            for broker in cluster.brokers.values():
                broker.delete_topic()
            assert await consumer.poll(timeout_s=10) == []
            assert consumer.assignment() == []
            for broker in cluster.brokers.values():
                broker.topics[TOPIC] = 2
            cluster.fill(5)
            found = await read(consumer, 20)
            assert {m.queue_offset for m in found} == set(range(5))
        assert sorted(queue for queues in told.revoked[:4] for queue in queues) == cluster.queues

    in_cluster(test)


@pytest.mark.parametrize("seed", range(6))
def test_every_message_is_polled_while_pulling_members_come_and_go(seed: int) -> None:
    async def test(cluster: ToyCluster) -> None:
        seen: Counter[tuple[MessageQueue, int]] = Counter()
        random = cluster.random

        async def pull(host: str, rounds: int | None) -> None:
            async with member(cluster, host, AUTO) as consumer:
                await consumer.subscribe(TOPIC)
                while rounds is None or rounds > 0:
                    for message in await consumer.poll(timeout_s=0.5, messages_max=20):
                        seen[message.queue, message.queue_offset] += 1
                    if rounds is not None:
                        rounds -= 1
                    if len(seen) == 1600 and rounds is None:
                        return

        async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
            staying = tasks.create_task(pull("stays", None))
            for number in range(100):
                cluster.fill(4)
                await asyncio.sleep(random.random())
                if number % 10 == 0:
                    tasks.create_task(pull(f"host-{number}", random.randrange(1, 40)))
                if number % 15 == 0:
                    cluster.network.cut("stays")
            await staying
        assert len(seen) == 1600

    in_cluster(test, seed)


def test_misuse_is_reported_by_name() -> None:
    async def test(cluster: ToyCluster) -> None:
        queue = cluster.queues[0]
        closed = member(cluster)
        with pytest.raises(ClosedError, match="not open"):
            await closed.subscribe(TOPIC)
        with pytest.raises(UsageError, match="without a group cannot commit by itself"):
            member(cluster, config=AUTO, group="")
        async with member(cluster, group="") as alone:
            with pytest.raises(UsageError, match="without a group cannot subscribe"):
                await alone.subscribe(TOPIC)
        async with member(cluster) as consumer:
            with pytest.raises(UsageError, match="not subscribed to any topic"):
                await consumer.assigned()
            for use in (consumer.pause, consumer.resume):
                with pytest.raises(UsageError, match=f"{queue} is not assigned"):
                    use(queue)
            with pytest.raises(UsageError, match=f"{queue} is not assigned"):
                await consumer.seek_to_time(1, queue)
            consumer.assign([queue])
            with pytest.raises(UsageError, match="at_ms"):
                consumer.seek_to_time(cast("int", "noon"))
            with pytest.raises(UsageError, match=r"assign\(\(\)\) before you subscribe"):
                await consumer.subscribe(TOPIC)
            consumer.assign(())
            await consumer.subscribe(TOPIC)
            with pytest.raises(UsageError, match="subscribed already"):
                await consumer.subscribe(TOPIC)
            with pytest.raises(UsageError, match="unsubscribe before you assign"):
                consumer.assign([queue])
            assert await consumer.poll(timeout_s=0) == []
            await consumer.unsubscribe()
            await consumer.unsubscribe()
            with pytest.raises(UsageError, match="before you poll"):
                await consumer.poll()
            consumer.assign([queue])

    in_cluster(test)


def test_failed_join_leaves_consumer_unsubscribed() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.network.partition("a", "nameserver")
        async with member(cluster) as consumer:
            with pytest.raises(Exception, match="nameserver") as caught:
                await consumer.subscribe(TOPIC)
            assert not isinstance(caught.value, RefusedError)
            cluster.network.heal()
            await consumer.subscribe(TOPIC)
            await consumer.assigned()
            assert consumer.assignment() == cluster.queues

    in_cluster(test)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("auto_commit_s", 0), ("rebalance_s", 0), ("take_over_wait_s", -1), ("allocate", "no")],
)
def test_impossible_setting_is_refused(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"consumer\.{setting}"):
        PullConsumerConfig(**{setting: value})
