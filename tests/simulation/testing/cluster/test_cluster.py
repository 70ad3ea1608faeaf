"""A cluster's time, its installation, and its networks."""

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import ClosedError, TernError, TopicNotFound, UsageError
from ternmq_model.message import Message
from ternmq_model.route import TopicConfig
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution
from ternmq_producer.blocking_producer import BlockingProducer
from ternmq_producer.producer import Producer
from ternmq_testing.cluster.blocking_cluster import BlockingCluster
from ternmq_testing.cluster.cluster import Cluster

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
ORDERED = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, order_per_queue=True)
DAY_S = 86_400.0

OUTSIDE = """
import asyncio, sys
from ternmq import Message, Producer

async def main():
    async with Producer("outside", nameserver=sys.argv[1]) as producer:
        await producer.send(Message("orders", b"from outside"))

asyncio.run(main())
"""


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


def test_idle_cluster_passes_three_days_in_few_stops() -> None:
    async def main() -> None:
        async with (
            Cluster(brokers=2) as cluster,
            cluster.producer("p") as producer,
            cluster.push_consumer("g", "orders", listener=lambda _: None),
        ):
            await producer.send(Message("orders", b"1"))
            await cluster.settled()
            await cluster.advance("1m")
            # Files are removed by their age in one hour of the day.
            assert await cluster.time.advance(3 * DAY_S) <= 7

    run(main())


@pytest.mark.parametrize("config", [FIRST, ORDERED], ids=["concurrent", "ordered"])
def test_living_members_keep_their_queues_and_get_each_message_once(
    config: PushConsumerConfig,
) -> None:
    async def main() -> None:
        seen: Counter[bytes] = Counter()
        sent: list[bytes] = []

        async def listen(message: StoredMessage) -> None:
            seen[message.body] += 1

        async with Cluster(brokers=2) as cluster, cluster.producer("p") as producer:
            async with cluster.admin() as admin:
                await admin.create_topic(TopicConfig("orders"))
            async with (
                cluster.push_consumer("g", "orders", listener=listen, config=config) as one,
                cluster.push_consumer("g", "orders", listener=listen, config=config) as other,
            ):
                await cluster.advance("1m")
                owned = [one.assignment(), other.assignment()]
                assert all(owned)
                for duration in ("10s", "1m", "10m", "3h", "2d"):
                    await cluster.advance(duration)
                    for number in range(12):
                        body = b"%d %s" % (number, duration.encode())
                        sent.append(body)
                        await producer.send(Message("orders", body, sharding_key=f"{number % 3}"))
                    await cluster.settled()
                assert [one.assignment(), other.assignment()] == owned
        assert seen == Counter(sent)

    run(main())


def test_message_comes_after_three_days_and_not_before() -> None:
    async def main() -> None:
        async with Cluster() as cluster, cluster.producer("p") as producer:
            await producer.send(Message("orders", b"later", deliver_after_ms=3 * 86_400_000))
            await cluster.advance("2d23h59m")
            cluster.expect("orders", count=0)
            await cluster.advance("1m")
            cluster.expect("orders", count=1)

    run(main())


def test_transaction_is_checked_fifteen_times_and_parked() -> None:
    async def main() -> None:
        checks: list[float] = []

        def check(_message: StoredMessage) -> Resolution:
            checks.append(cluster.now())
            return Resolution.UNKNOWN

        async with (
            Cluster() as cluster,
            cluster.transaction_producer(
                "p", execute=lambda _, __: Resolution.UNKNOWN, check=check, topics=("orders",)
            ) as producer,
        ):
            begun = cluster.now()
            await producer.send(Message("orders", b"1"))
            await cluster.advance("1h")
            assert len(checks) == 15
            assert checks[-1] - begun < 3600
            cluster.expect("TRANS_CHECK_MAX_TIME_TOPIC", count=1)
            cluster.expect("orders", count=0)

    run(main())


def test_old_files_are_removed_in_the_course_of_days() -> None:
    async def main() -> None:
        async with (
            Cluster(commit_log_file_bytes=1 << 16) as cluster,
            cluster.producer("p") as producer,
        ):
            await cluster.advance("1s")
            for _ in range(3):
                for _ in range(30):
                    await producer.send(Message("orders", bytes(4000)))
                await cluster.advance("5d")
                assert len(cluster.messages("orders")) <= 16, "those of the last file"

    run(main())


def test_installation_reaches_clients_of_all_threads_under_any_address() -> None:
    def send_blocking() -> None:
        with BlockingProducer("b", nameserver="somewhere:1234") as producer:
            producer.send(Message("orders", b"blocking"))

    async def main() -> None:
        came = asyncio.Event()
        async with Cluster() as cluster:
            with cluster.installed():
                async with (
                    Producer("p", nameserver="nowhere:9") as producer,
                    PushConsumer("g", "orders", listener=lambda _: came.set(), config=FIRST),
                ):
                    await producer.send(Message("orders", b"1"))
                    await asyncio.wait_for(came.wait(), 10)
                    await asyncio.to_thread(send_blocking)
                with (
                    pytest.raises(UsageError, match="another environment"),
                    cluster.installed(),
                ):
                    raise AssertionError("entered twice")
            cluster.expect("orders", count=2)

    run(main())


def test_client_opened_before_the_installation_says_so() -> None:
    async def main() -> None:
        async with (
            Producer("early", nameserver="127.0.0.1:1") as early,
            Cluster() as cluster,
            cluster.producer("p") as own,
        ):
            with pytest.warns(RuntimeWarning, match="of another"), cluster.installed():  # noqa: PT031
                with pytest.raises(UsageError, match="opened before"):
                    await early.send(Message("orders", b"1"))
                await own.send(Message("orders", b"2"))
            cluster.expect("orders", count=1)
            assert not early.client.disowned

    run(main())


def test_move_waits_for_blocking_calls_of_clients() -> None:
    async def main() -> None:
        async with Cluster() as cluster, cluster.producer("p") as producer:
            released, ended = threading.Event(), list[str]()
            env = producer.client.env
            call = asyncio.create_task(env.blocking.run(released.wait, 10))
            call.add_done_callback(lambda _: ended.append("call"))
            env.timers.call_later(1.0, ended.append, "stop")
            asyncio.get_running_loop().call_later(0.1, released.set)
            await cluster.advance("10s")
            assert ended == ["call", "stop"]

    run(main())


def test_cluster_leaves_no_thread() -> None:
    async def main() -> None:
        async with Cluster(brokers=2) as cluster, cluster.producer("p") as producer:
            await producer.send(Message("orders", b"1"))
            await cluster.advance("1d")

    before = set(threading.enumerate())
    run(main())
    assert set(threading.enumerate()) <= before


def test_programs_in_other_processes_use_a_cluster_on_grpc() -> None:
    async def main() -> None:
        async with Cluster(network="grpc") as cluster, cluster.producer("p") as producer:
            await producer.send(Message("orders", b"inside", deliver_after_ms=3_600_000))
            command = [sys.executable, "-c", OUTSIDE, cluster.nameserver]
            await asyncio.to_thread(subprocess.run, command, check=True, timeout=50)
            await cluster.advance("1h")
            bodies = [each.body for each in cluster.expect("orders", count=2)]
            assert bodies == [b"from outside", b"inside"]
            with pytest.raises(UsageError, match="memory"):
                cluster.partition("clients", "broker-a")

    run(main())


def test_later_cluster_opens_the_data_of_an_earlier_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with Cluster(data=tmp_path) as cluster, cluster.producer("p") as producer:
            await producer.send(Message("orders", b"1"))
            await cluster.broker().crash()
            await cluster.broker().restart()
        async with Cluster(data=str(tmp_path)) as cluster:
            cluster.expect("orders", count=1)
            with pytest.raises(UsageError, match="data"):
                cluster.broker().disk_full()

    run(main())


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"brokers": 0}, "brokers=0 must be a whole number from 1 to 26"),
        ({"brokers": "2"}, "brokers='2' must be"),
        ({"flush": "SYNC"}, "flush='SYNC' must be 'sync' or 'async'"),
        ({"topics": 3}, "topics=3: must be names"),
        ({"data": 3}, "data=3: must be the path"),
        ({"seed": []}, r"seed=\[\] must be a whole number"),
        ({"seed": "x"}, "seed='x' must be"),
        ({"colour": "red"}, "'colour'"),
        ({"name": "b"}, "name='b' is the cluster's own: .*brokers=2"),
        ({"port": 7}, "port=7 is the cluster's own"),
        ({"flush_mode": "sync"}, "flush_mode='sync' is the cluster's own: use flush='sync'"),
    ],
)
def test_wrong_arguments_of_a_cluster_are_refused_by_name(
    arguments: dict[str, Any], rule: str
) -> None:
    for kind in (Cluster, BlockingCluster):
        with pytest.raises(UsageError, match=rule):
            kind(**arguments)


def test_cluster_is_used_while_it_is_open() -> None:
    def check_closed(cluster: Any, error: type[Exception]) -> None:
        for use in (
            lambda: cluster.nameserver,
            cluster.broker,
            lambda: cluster.brokers,
            lambda: cluster.installed().__enter__(),
            lambda: cluster.expect("orders", count=0),
        ):
            with pytest.raises(error, match="not open: use it inside"):
                use()

    async def main() -> None:
        cluster = Cluster()
        check_closed(cluster, UsageError)
        async with cluster:
            with pytest.raises(ClosedError, match="already open"):
                await cluster.__aenter__()
            assert cluster.expect("orders", count=0) == []
        check_closed(cluster, UsageError)

    run(main())
    blocking = BlockingCluster()
    check_closed(blocking, TernError)
    with pytest.raises(ClosedError, match="not open"):
        _ = blocking.asynchronous
    with blocking:
        with pytest.raises(ClosedError, match="already open"):
            blocking.__enter__()
        assert blocking.expect("orders", count=0) == []
    check_closed(blocking, TernError)


def test_wrong_arguments_are_refused_by_name() -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="'udp'"):
            await Cluster(network="udp").__aenter__()
        with pytest.raises(UsageError, match="async with"):
            Cluster().freeze()
        wrong: Any = "x"
        async with Cluster() as cluster:
            with pytest.raises(UsageError, match="broker-a"):
                cluster.broker("broker-z")
            with pytest.raises(UsageError, match="no host"):
                cluster.partition("clients", "broker-z")
            with pytest.raises(UsageError, match="did you mean 'SendStream'"):
                cluster.drop_answers("Sendstream")
            with pytest.raises(UsageError, match="duration"):
                await cluster.advance("soon")
            with pytest.raises(UsageError, match="other=3 is no host: there are broker-a, clients"):
                cluster.partition("clients", 3)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="name two hosts"):
                cluster.partition("clients", "clients")
            with pytest.raises(UsageError, match="next=-2 must be a whole number of at least 1"):
                cluster.drop_answers("SendStream", next=-2)
            with pytest.raises(UsageError, match="next=0 must be"):
                cluster.broker().refuse(next=0)
            for timeout_s in (wrong, -1):
                with pytest.raises(UsageError, match=r"timeout_s=.* must be seconds"):
                    await cluster.settled(timeout_s=timeout_s)
            with pytest.raises(UsageError, match="count='x' must be a whole number"):
                cluster.expect("orders", count=wrong)
            with pytest.raises(UsageError, match="where='amount >' is no condition: "):
                cluster.expect("orders", where="amount >")
            await cluster.broker().crash()
            with pytest.raises(UsageError, match="broker-a does not run"):
                cluster.broker().pause()
            with pytest.raises(UsageError, match="broker-a does not run"):
                cluster.broker().refuse()
            with pytest.raises(UsageError, match="no broker runs"):
                cluster.drop_answers("SendStream")

    run(main())


def test_blocking_client_on_the_loop_of_the_cluster_says_how_it_is_used() -> None:
    def send() -> None:
        with BlockingProducer("p") as producer:
            producer.send(Message("orders", b"1"))

    async def main() -> None:
        async with Cluster() as cluster:
            with cluster.installed():
                with pytest.raises(UsageError, match="the cluster is blocked"):
                    send()
                await asyncio.to_thread(send)
            cluster.expect("orders", count=1)

    run(main())


def test_client_whose_loop_has_ended_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    left: list[AdminClient | Producer] = []

    async def main(cluster: Cluster) -> None:
        left.append(await cluster.admin().__aenter__())
        left.append(await cluster.producer("p").__aenter__())

    with BlockingCluster() as cluster:
        asyncio.run(main(cluster.asynchronous))
        leaks = cluster.leaks()
    for found, kind in zip(leaks, ("an admin client", "a producer of p"), strict=True):
        assert found.startswith(f"{kind} is open, opened at {__file__}:")
    assert "athrow" not in caplog.text


def test_blocking_admin_client_calls_the_methods_of_the_other() -> None:
    with BlockingCluster(brokers=2) as cluster, cluster.admin() as admin:
        admin.create_topic(TopicConfig("orders"))
        assert {each.broker_name for each in admin.route("orders").read_queues()} == {
            "broker-a",
            "broker-b",
        }
        with pytest.raises(TopicNotFound):
            admin.route("others")
        with pytest.raises(AttributeError, match="no attribute 'fly'"):
            admin.fly()
