"""Push consumers with a columns listener in a simulated cluster, on virtual time."""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.consume_status import ListenerAnswer, ReconsumeLater
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.columns.column_names import COLUMNS
from ternmq_model.errors import MissingPackage, UsageError
from ternmq_model.route import TopicConfig
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.simulated_cluster import NAMESERVER, simulated_cluster
from tests.support.toy_cluster import FIRST, ToyCluster
from tests.support.toy_log import TOPIC

pytest.importorskip("pyarrow")


def in_cluster(test: Callable[[ToyCluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=1, queues=4) as cluster:
            await test(cluster)

    run_in_virtual_time(main())


def places(batch: Any) -> list[tuple[int, int]]:
    queues, offsets = batch.column("queueId"), batch.column("queueOffset")
    return list(zip(queues.to_pylist(), offsets.to_pylist(), strict=True))


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("batch_messages", [7, 1024])
def test_columns_listener_gets_every_message_once_in_batches_of_one_queue(
    kind: str, batch_messages: int
) -> None:
    async def test(cluster: ToyCluster) -> None:
        count = cluster.fill(200, tags=("Aa", "BB"))
        seen: list[tuple[int, int]] = []

        def plain(batch: Any) -> None:
            batch.validate(full=True)
            assert batch.schema.names == list(COLUMNS)
            assert 0 < batch.num_rows <= batch_messages
            assert len(set(batch.column("queueId").to_pylist())) == 1
            assert set(batch.column("tags").to_pylist()) == {"Aa"}
            seen.extend(places(batch))

        async def waits(batch: Any) -> bool:
            plain(batch)
            await asyncio.sleep(0.1)
            return True

        config = replace(FIRST, batch_messages=batch_messages)
        chosen: Any = plain if kind == "plain" else waits
        async with cluster.consumer("c1", config, topics={TOPIC: "Aa"}, columns_listener=chosen):
            await until(lambda: len(seen) == count // 2)
            await asyncio.sleep(30)
        assert len(set(seen)) == len(seen) == count // 2
        assert [cluster.committed("g", queue) for queue in cluster.queues] == [200] * 4

    in_cluster(test)


def test_failed_rows_behind_the_finished_ones_are_sent_back() -> None:
    async def test(cluster: ToyCluster) -> None:
        queue = cluster.queues[0]
        for _ in range(10):
            cluster.append(queue, b"body")

        def listener(batch: Any) -> ListenerAnswer:
            offsets = batch.column("queueOffset").to_pylist()
            if batch.column("reconsumeTimes").to_pylist()[0] or offsets[-1] < 7:
                return None
            return ReconsumeLater(finished=sum(offset < 7 for offset in offsets))

        async with cluster.consumer("c1", FIRST, columns_listener=listener):
            await asyncio.sleep(60)
        groups = cluster.first.groups
        assert [failed.queue_offset for failed in groups.sent_back] == [7, 8, 9]
        assert cluster.committed("g", queue) == 10

    in_cluster(test)


@pytest.mark.parametrize("order_per_queue", [False, True])
def test_redelivered_rows_have_their_topic_and_number_of_attempts(order_per_queue: bool) -> None:
    async def main() -> None:
        async with simulated_cluster(1, brokers=["a"]) as cluster:
            admin = AdminClient(nameserver=NAMESERVER, env=cluster.environment("tool"))
            async with cluster.producer() as producer, admin:
                await admin.create_topic(TopicConfig("orders", 1, 1))
                for _ in range(6):
                    await cluster.send(producer, "orders", key="")
            attempts: Counter[bytes] = Counter()
            wrong: list[object] = []

            def listener(batch: Any) -> bool:
                for row in batch.to_pylist():
                    found = (row["topic"], row["reconsumeTimes"])
                    if found != ("orders", attempts[row["body"]]):
                        wrong.append((found, attempts[row["body"]]))
                    attempts[row["body"]] += 1
                return max(attempts.values()) >= 3

            consumer = PushConsumer(
                "readers",
                "orders",
                columns_listener=listener,
                nameserver=NAMESERVER,
                config=PushConsumerConfig(
                    consume_from=ConsumeFrom.FIRST_OFFSET, order_per_queue=order_per_queue
                ),
                env=cluster.environment("consumer"),
            )
            async with consumer:
                await until(
                    lambda: len(attempts) == 6 and min(attempts.values()) >= 2, within_s=900
                )
            assert wrong == []

    run_in_virtual_time(main())


def test_corrupt_records_reach_no_columns_listener_and_are_read_again() -> None:
    async def test(cluster: ToyCluster) -> None:
        count = cluster.fill(50)
        seen: list[tuple[int, int]] = []
        cluster.first.corrupt_next = True

        def listener(batch: Any) -> None:
            seen.extend(places(batch))

        async with cluster.consumer("c1", FIRST, columns_listener=listener):
            await until(lambda: len(seen) == count)
        assert len(set(seen)) == count

    in_cluster(test)


def test_columns_listener_excludes_others_and_names_the_missing_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def listener(_: object) -> None:
        """Handle nothing."""

    with pytest.raises(UsageError, match="no other listener"):
        PushConsumer("g", TOPIC, listener=listener, columns_listener=listener)
    with pytest.raises(UsageError, match="columns_listener"):
        PushConsumer("g", TOPIC, columns_listener=5)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackage, match=r"ternmq\[arrow\]"):
        PushConsumer("g", TOPIC, columns_listener=listener)
