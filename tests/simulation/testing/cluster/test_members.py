"""Faults of brokers, each as the code of an application meets it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ternmq_model.errors import BrokerBusy, RefusedError, TernError, Unreachable, UsageError
from ternmq_model.message import Message
from ternmq_model.route import TopicConfig
from ternmq_producer.config import ProducerConfig
from ternmq_testing.cluster.cluster import Cluster

ONCE = ProducerConfig(attempts_max=1)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


async def create(cluster: Cluster, topic: str) -> None:
    """Create a topic at every broker."""
    async with cluster.admin() as admin:
        await admin.create_topic(TopicConfig(topic))


@pytest.mark.parametrize(("flush", "kept"), [("sync", 1), ("async", 0)])
def test_crash_loses_what_was_not_flushed(flush: str, kept: int) -> None:
    async def main() -> None:
        async with Cluster(flush=flush) as cluster, cluster.producer("p") as producer:
            cluster.freeze()
            await create(cluster, "orders")
            await cluster.advance("1m")
            await producer.send(Message("orders", b"1"))
            await cluster.broker().crash()
            await cluster.broker().restart()
            assert len(cluster.messages("orders")) == kept

    run(main())


def test_sends_go_to_the_other_broker_after_a_crash() -> None:
    async def main() -> None:
        async with Cluster(brokers=2, flush="sync") as cluster, cluster.producer("p") as producer:
            await create(cluster, "orders")
            await producer.send(Message("orders", b"before"))
            await cluster.broker("broker-a").crash()
            for number in range(8):
                result = await producer.send(Message("orders", b"%d" % number))
                assert result.queue.broker_name == "broker-b"
            await cluster.broker("broker-a").restart()
            cluster.expect("orders", count=9)

    run(main())


def test_broker_that_is_down_and_alone_is_unreachable() -> None:
    async def main() -> None:
        async with Cluster() as cluster, cluster.producer("p", config=ONCE) as producer:
            await create(cluster, "orders")
            await producer.send(Message("orders", b"1"))
            await cluster.broker().crash()
            cluster.freeze()
            sending = asyncio.create_task(producer.send(Message("orders", b"2")))
            await cluster.advance("10s")
            with pytest.raises(Unreachable) as failure:
                await sending
            assert "None" not in str(failure.value)
            with pytest.raises(UsageError, match="does not run"):
                await cluster.broker().crash()

    run(main())


def test_refusals_are_retried_until_the_attempts_are_over() -> None:
    async def main() -> None:
        async with Cluster() as cluster, cluster.producer("p") as producer:
            await create(cluster, "orders")
            cluster.broker().refuse(next=2)
            await producer.send(Message("orders", b"retried"))
            cluster.broker().refuse(next=3)
            with pytest.raises(BrokerBusy):
                await producer.send(Message("orders", b"refused"))
            await producer.send(Message("orders", b"stored"))
            assert [each.body for each in cluster.messages("orders")] == [b"retried", b"stored"]

    run(main())


def test_answers_keep_their_order_around_a_refusal() -> None:
    async def main() -> None:
        async with (
            Cluster(flush="sync") as cluster,
            cluster.producer("p", config=ONCE) as producer,
        ):
            await create(cluster, "orders")
            await producer.send(Message("orders", b"first"))
            cluster.broker().refuse(next=1)
            answers = [
                await producer.enqueue(Message("orders", b"%d" % number)) for number in range(20)
            ]
            found = await asyncio.gather(*answers, return_exceptions=True)
            stored = [each for each in found if not isinstance(each, BaseException)]
            refused = [each for each in found if isinstance(each, BrokerBusy)]
            assert len(stored) + len(refused) == 20
            assert refused
            cluster.expect("orders", count=1 + len(stored))

    run(main())


def test_paused_broker_answers_when_it_goes_on() -> None:
    async def main() -> None:
        async with Cluster() as cluster, cluster.producer("p") as producer:
            await create(cluster, "orders")
            cluster.freeze()
            cluster.broker().pause()
            sending = asyncio.create_task(producer.send(Message("orders", b"1")))
            await cluster.advance("1s")
            assert not sending.done()
            cluster.broker().resume()
            await sending

    run(main())


def test_send_to_a_paused_broker_times_out_by_the_moved_time() -> None:
    async def main() -> None:
        async with Cluster() as cluster, cluster.producer("p") as producer:
            await create(cluster, "orders")
            cluster.freeze()
            cluster.broker().pause()
            sending = asyncio.create_task(producer.send(Message("orders", b"1")))
            await cluster.advance("10s")
            with pytest.raises(TernError):
                await sending

    run(main())


def test_full_disk_refuses_until_there_is_space() -> None:
    async def main() -> None:
        async with Cluster(flush="sync") as cluster, cluster.producer("p", config=ONCE) as producer:
            await create(cluster, "orders")
            cluster.freeze()
            await producer.send(Message("orders", b"1"))
            for _ in range(2):
                cluster.broker().disk_full()
                for _ in range(4):
                    with pytest.raises(RefusedError, match="the disk is 100% full"):
                        await producer.send(Message("orders", b"2"))
                cluster.heal()
                await producer.send(Message("orders", b"3"))
            assert sorted(each.body for each in cluster.messages("orders")) == [b"1", b"3", b"3"]

    run(main())


def test_partition_cuts_two_hosts_off_until_it_heals() -> None:
    async def main() -> None:
        async with Cluster(brokers=2) as cluster, cluster.producer("p") as producer:
            await create(cluster, "orders")
            names = {each.name for each in cluster.brokers}
            for away in sorted(names):
                cluster.partition("clients", away)
                sent = [await producer.send(Message("orders", b"1")) for _ in range(4)]
                assert {each.queue.broker_name for each in sent} == names - {away}
                cluster.heal()
            cluster.partition("nameserver", cluster.broker("broker-b"))
            await cluster.advance("3m")
            async with cluster.admin() as admin:
                route = await admin.route("orders")
                assert {each.broker_name for each in route.read_queues()} == {"broker-a"}
                cluster.heal()
                await cluster.advance("1m")
                route = await admin.route("orders")
                assert {each.broker_name for each in route.read_queues()} == names

    run(main())
