"""The report of a cluster whose history is known."""

import asyncio
from collections.abc import Sequence

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import refusal
from ternmq_model.message import Message
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_pipeline.cluster.reader import ClusterReader
from ternmq_pipeline.jobs.cluster_report.page import page
from ternmq_pipeline.jobs.cluster_report.report_queries import query_report
from ternmq_pipeline.jobs.cluster_report.report_tables import HOUR_MS, ClusterReport
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.planning.admission import RangeSize
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.slow_jobs import slow_jobs

SLOW_AFTER_MS = 60_000


class MeasuringReader(ClusterReader):
    """A reader that measures queues itself: simulated brokers have no process for that."""

    gone = ""
    """Topic that is deleted before its queues are measured."""

    async def measure(self, asked: Sequence[tuple[OffsetRange, int]]) -> list[RangeSize]:
        if any(offset_range.queue.topic == self.gone for offset_range, _ in asked):
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {self.gone!r} is on no broker")
        return [RangeSize(each.end, 100 * (each.end - each.begin)) for each, _ in asked]


async def report_of(
    cluster: SimulatedCluster, hours: int = 3, gone: str = "", now_ms: int = 0
) -> ClusterReport:
    config = ClientConfig(nameservers=(NAMESERVER,))
    env = cluster.environment("tool")
    async with (
        AdminClient(client=config, env=env) as admin,
        MeasuringReader(config, env=env) as reader,
    ):
        reader.gone = gone
        return await query_report(
            admin,
            reader,
            now_ms=now_ms or cluster.now_ms(),
            hours=hours,
            slow_after_ms=SLOW_AFTER_MS,
        )


def consumer(cluster: SimulatedCluster, group: str, listener: object) -> PushConsumer:
    return PushConsumer(
        group,
        "orders",
        listener=listener,  # type: ignore[arg-type]
        nameserver=NAMESERVER,
        config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, retries_max=0),
        env=cluster.environment(group.lower()),
    )


def test_cluster_without_topics_has_a_report_without_rows() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster:
            found = await report_of(cluster)
            assert (found.brokers, found.topics, found.groups) == (["a", "b"], [], [])
            assert not any((found.members, found.dead_letters, found.traffic))

    run_in_virtual_time(main())


def test_cluster_without_brokers_has_an_empty_report() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=()) as cluster:
            assert not (await report_of(cluster)).brokers

    run_in_virtual_time(main())


def test_report_names_brokers_that_give_no_answer_and_lacks_only_theirs() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, cluster.producer() as producer:
            await cluster.put_topic("orders", 1)
            for number in range(10):
                await producer.send(Message("orders", b"%d" % number))
            whole = await report_of(cluster)
            cluster.kill("b")
            found = await report_of(cluster)
            assert (found.brokers, [each.broker_name for each in found.unreachable]) == (
                ["a", "b"],
                ["b"],
            )
            assert "No answer from b:" in page(found)
            assert "No answer" not in page(whole)
            assert [row.topic for row in found.topics] == ["orders"]
            assert 0 < found.topics[0].messages < whole.topics[0].messages == 10

    run_in_virtual_time(main())


def test_topics_report_stored_messages_and_hourly_traffic() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, cluster.producer() as producer:
            await cluster.put_topic("orders", 2)
            await cluster.put_topic("idle", 1)
            sent: dict[int, int] = {}
            for count in (7, 0, 30):
                for number in range(count):
                    await producer.send(Message("orders", b"%d" % number))
                now_ms = cluster.now_ms()
                sent[now_ms - now_ms % HOUR_MS] = count
                with slow_jobs():
                    await asyncio.sleep(3600 if count < 30 else 1)
            for broker in ("a", "b"):  # which count from nothing then
                await cluster.stop(broker)
                await cluster.start(broker)
            found = await report_of(cluster)
            rows = {row.topic: row for row in found.topics}
            assert (rows["orders"].messages, rows["orders"].bytes) == (37, 3700)
            assert (rows["orders"].queues, rows["orders"].in_24h) == (4, 37)
            assert (rows["idle"].messages, rows["idle"].last_stored_at_ms) == (0, None)
            by_hour = {row.hour_at_ms: row.messages for row in found.traffic if row.messages}
            assert by_hour == {hour: count for hour, count in sent.items() if count}
            assert len([row for row in found.traffic if row.topic == "orders"]) == 4
            assert sum(row.messages for row in (await report_of(cluster, hours=1)).traffic) == 30

    run_in_virtual_time(main())


def test_daily_message_count_leaves_out_older_messages() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, cluster.producer() as producer:
            await cluster.put_topic("orders", 1)
            await producer.send(Message("orders", b"early"))
            with slow_jobs():
                await asyncio.sleep(3600)
            await producer.send(Message("orders", b"late"))
            in_a_day = cluster.now_ms() + 23 * HOUR_MS
            (row,) = (await report_of(cluster, now_ms=in_a_day + HOUR_MS // 2)).topics
            assert (row.messages, row.in_24h) == (2, 1)

    run_in_virtual_time(main())


def test_topic_deleted_during_the_report_is_left_out() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, cluster.producer() as producer:
            await cluster.put_topic("gone", 1)
            await cluster.put_topic("orders", 1)
            await producer.send(Message("gone", b"kept"))
            found = await report_of(cluster, gone="gone")
            assert [row.topic for row in found.topics] == ["orders"]
            assert {row.topic for row in found.traffic} == {"orders"}

    run_in_virtual_time(main())


def test_groups_report_lag_dead_letters_and_slow_consumers() -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def takes(_: StoredMessage) -> bool:
            return True

        async def refuses(message: StoredMessage) -> bool:
            return not message.body.endswith(b"7")

        async def waits(_: StoredMessage) -> None:
            await go_on.wait()

        async with simulated_cluster() as cluster, cluster.producer() as producer:
            await cluster.put_topic("orders", 2)
            for number in range(40):
                await producer.send(Message("orders", b"%d" % number))
            async with (
                consumer(cluster, "Quick", takes),
                consumer(cluster, "Picky", refuses),
                consumer(cluster, "Stuck", waits),
            ):
                await asyncio.sleep(40)
                early = await report_of(cluster)
                assert not early.slow
                await asyncio.sleep(60)
                found = await report_of(cluster)
                go_on.set()
            rows = {row.group: row for row in found.groups if not row.is_retry}
            assert (rows["Quick"].lag, rows["Quick"].out_24h, rows["Quick"].members) == (0, 40, 1)
            assert (rows["Stuck"].lag, rows["Stuck"].is_slow) == (40, True)
            assert 60 <= rows["Stuck"].lag_s <= 101
            assert [row.group for row in found.slow] == ["Stuck"]
            assert {row.group: row.is_slow for row in found.members} == {
                "Quick": False,
                "Picky": False,
                "Stuck": True,
            }
            (letters,) = found.dead_letters
            assert (letters.group, letters.waiting, letters.kept) == ("Picky", 4, 4)
            assert rows["Picky"].dead_24h == 4
            assert next(row for row in found.topics if row.topic == "orders").groups == 3
            assert not any(row.topic.startswith("%") for row in found.topics)

    run_in_virtual_time(main())
