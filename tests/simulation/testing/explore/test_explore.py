"""Exploration of scenarios: what it finds, what it says, and that a seed repeats it."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TernError, UsageError
from ternmq_model.message import Message
from ternmq_model.route import TopicConfig
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution
from ternmq_producer.producer import Producer
from ternmq_testing.explore.explore import explore, explored
from ternmq_testing.explore.explored_cluster import ExploredCluster
from ternmq_testing.explore.trouble import FAULTS
from ternmq_testing.memory.memory_files import Node, PowerLossFileSystem
from tests.support.examples import seeds

ORDERS = 20


async def create(cluster: ExploredCluster, topic: str) -> None:
    async with cluster.admin() as admin:
        await admin.create_topic(TopicConfig(topic))


async def shop(cluster: ExploredCluster) -> None:
    """Send orders of some customers to a group that collects them."""
    billed: set[bytes] = set()
    ordered: set[bytes] = set()

    async def bill(message: StoredMessage) -> None:
        billed.add(message.body)

    await create(cluster, "orders")
    async with (
        cluster.push_consumer("billing", "orders", listener=bill) as consumer,
        cluster.producer("shop") as producer,
    ):
        await consumer.assigned()
        for number in range(ORDERS):
            body = b"order %d" % number
            with suppress(TernError):
                await producer.send(Message("orders", body, sharding_key=f"c{number % 3}"))
                ordered.add(body)
        await cluster.settled()
    assert ordered <= billed


async def payments(cluster: ExploredCluster) -> None:
    """Pay orders in transactions, some of which are rolled back, or asked about."""
    outcomes: dict[bytes, Resolution] = {}
    billed: set[bytes] = set()

    async def pay(message: Message, number: int) -> Resolution:
        outcomes[message.body] = Resolution.ROLLBACK if number % 3 == 0 else Resolution.COMMIT
        return Resolution.UNKNOWN if number % 4 == 0 else outcomes[message.body]

    async def was_paid(message: StoredMessage) -> Resolution:
        return outcomes.get(message.body, Resolution.ROLLBACK)

    async def bill(message: StoredMessage) -> None:
        billed.add(message.body)

    await create(cluster, "paid")
    async with (
        cluster.push_consumer("billing", "paid", listener=bill),
        cluster.transaction_producer("payers", execute=pay, check=was_paid) as producer,
    ):
        for number in range(8):
            with suppress(TernError):
                await producer.send(Message("paid", b"order %d" % number), number)
        await cluster.settled()
        await cluster.advance("5m")
        await cluster.settled()
    assert billed == {body for body, said in outcomes.items() if said is Resolution.COMMIT}


async def resending(cluster: ExploredCluster) -> None:
    """Take an error for a message that is not stored, and send it again."""
    await create(cluster, "orders")
    async with cluster.producer("shop") as producer:
        for number in range(ORDERS):
            for _ in range(3):
                with suppress(TernError):
                    await producer.send(Message("orders", b"order %d" % number), timeout_s=1)
                    break
    await cluster.settled()
    bodies = [message.body for message in cluster.messages("orders")]
    assert len(bodies) == len(set(bodies)), "an order is there twice"


async def counting(cluster: ExploredCluster) -> None:
    """Count each call of the listener as another order."""
    calls = 0
    sent = 0

    async def bill(_: StoredMessage) -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.02)

    await create(cluster, "orders")
    async with (
        cluster.push_consumer("billing", "orders", listener=bill) as consumer,
        cluster.producer("shop") as producer,
    ):
        await consumer.assigned()
        for number in range(ORDERS):
            with suppress(TernError):
                await producer.send(Message("orders", b"%d" % number))
                sent += 1
        await cluster.settled()
    assert calls == sent


async def committing_early(cluster: ExploredCluster) -> None:
    """Commit what was polled before it is processed."""
    sent: set[bytes] = set()
    processed: set[bytes] = set()

    async def consume() -> None:
        async with cluster.pull_consumer("billing") as consumer:
            await consumer.subscribe("orders")
            while True:
                messages = await consumer.poll()
                await consumer.commit()
                for message in messages:
                    await asyncio.sleep(0.01)
                    if cluster.random.random() < 0.1:
                        return  # the process dies
                    processed.add(message.body)

    await create(cluster, "orders")
    async with cluster.producer("shop") as producer:
        for number in range(ORDERS):
            with suppress(TernError):
                await producer.send(Message("orders", b"%d" % number))
                sent.add(b"%d" % number)
    for _ in range(20):
        with suppress(TernError, TimeoutError):
            async with asyncio.timeout(3):
                await consume()
    await cluster.settled()
    assert sent <= processed, "an order was committed and not processed"


def failure_of(scenario: Callable[[ExploredCluster], Awaitable[object]], **options: Any) -> str:
    """Return the text of the failure that an exploration finds, with its notes."""
    with pytest.raises(AssertionError) as raised:
        explore(scenario, **options)
    return "\n".join([str(raised.value), *raised.value.__notes__])


@pytest.mark.parametrize("scenario", [shop, payments])
def test_correct_scenario_passes(
    scenario: Callable[[ExploredCluster], Awaitable[object]],
) -> None:
    explore(scenario, seeds=seeds(12, soak=2000))


@pytest.mark.parametrize("scenario", [resending, counting, committing_early])
def test_bug_of_the_application_is_found(
    scenario: Callable[[ExploredCluster], Awaitable[object]],
) -> None:
    text = failure_of(scenario, seeds=200)
    found = re.search(r"seed (\d+) failed", text)
    assert found is not None
    assert f"explore({scenario.__name__}, seeds=[{found[1]}])" in text
    assert "send #20" in text
    assert re.search(r"\d\.\d{3} s  send #1 acknowledged: SEND_OK, orders@broker", text)
    assert "no more faults" in text
    assert failure_of(scenario, seeds=[int(found[1])]) == text


async def installed(cluster: ExploredCluster) -> None:
    """Let an application make its own clients, which know nothing of the exploration."""
    got: set[bytes] = set()

    async def take(message: StoredMessage) -> None:
        got.add(message.body)

    await create(cluster, "orders")
    with cluster.installed():
        async with (
            PushConsumer("g", "orders", listener=take) as consumer,
            Producer("p") as producer,
        ):
            await consumer.assigned()
            for number in range(ORDERS):
                with suppress(TernError):
                    await producer.send(Message("orders", b"%d" % number))
            await cluster.settled()
    assert len(got) == ORDERS


def test_faults_strike_applications_that_make_their_own_clients() -> None:
    runs = [explored(installed, seed, timeout_s=600, faults=["kill"]) for seed in range(5)]
    assert [run.failure for run in runs] == [None] * 5
    assert all("send #1 acknowledged" in run.history for run in runs)
    assert all("group g got " in run.history for run in runs)
    assert any("was killed" in run.history for run in runs)


def test_faults_of_every_kind_strike() -> None:
    missing = {
        *("lost its power", "was killed", "broker-a stopped", "answers of SendStream are lost"),
        *("calls lose", "the disk takes", "network: whole again", "connections of clients"),
        *("paused", "a send was refused", "joins group billing", "dies", "leaves"),
    }
    for seed in range(200):
        run = explored(shop, seed, timeout_s=600, faults=FAULTS, brokers=2, flush="sync")
        missing = {event for event in missing if event not in run.history}
        if not missing:
            break
    assert not missing


@pytest.mark.parametrize("seed", [3, 40])
def test_seed_repeats_its_history(seed: int) -> None:
    options: dict[str, Any] = {"timeout_s": 600, "brokers": 2, "flush": "sync", "faults": FAULTS}
    first, second = (explored(payments, seed, **options) for _ in range(2))
    assert first.history == second.history
    assert explored(payments, seed + 1, **options).history != first.history


def test_lying_disk_loses_acknowledged_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_nothing(_files: PowerLossFileSystem, node: Node) -> None:
        if len(node.data) < 1 << 20:  # other files than commit logs
            node.disk = node.data.copy()

    monkeypatch.setattr(PowerLossFileSystem, "keep", keep_nothing)

    async def sending(cluster: ExploredCluster) -> None:
        await create(cluster, "orders")
        async with cluster.producer("shop") as producer:
            for number in range(ORDERS):
                with suppress(TernError):
                    await producer.send(Message("orders", b"%d" % number))
                await asyncio.sleep(0.1)

    text = failure_of(sending, seeds=60, faults=["power loss"])
    assert "broken promises:\n  lost: message #" in text
    assert "lost its power" in text


def test_asynchronous_flush_may_lose_messages() -> None:
    async def sending(cluster: ExploredCluster) -> None:
        await create(cluster, "orders")
        async with cluster.producer("shop") as producer:
            for number in range(ORDERS):
                with suppress(TernError):
                    await producer.send(Message("orders", b"%d" % number))
                await asyncio.sleep(0.1)

    explore(sending, seeds=10, faults=["power loss"], flush="async")


def test_scenario_that_never_ends_is_stopped() -> None:
    async def waiting(cluster: ExploredCluster) -> None:
        await asyncio.Event().wait()

    assert "did not end within 30 s" in failure_of(waiting, seeds=1, timeout_s=30)


def test_client_that_is_left_open_is_named() -> None:
    async def leaving(cluster: ExploredCluster) -> None:
        await cluster.producer("shop").__aenter__()

    assert "left behind: " in failure_of(leaving, seeds=1)


def test_error_of_the_scenario_keeps_its_class() -> None:
    async def failing(cluster: ExploredCluster) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        explore(failing, seeds=[17])
    assert "seed 17 failed" in raised.value.__notes__[0]


def test_broker_that_the_scenario_crashes_comes_back() -> None:
    async def crashing(cluster: ExploredCluster) -> None:
        await create(cluster, "orders")
        async with cluster.producer("shop") as producer:
            with suppress(TernError):
                await producer.send(Message("orders", b"1"))
            if cluster.broker().is_running:
                await cluster.broker().crash()
        await cluster.settled()
        assert cluster.broker().is_running

    explore(crashing, seeds=10)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"seeds": 0}, "seeds=0 must be a number of seeds"),
        ({"seeds": "17"}, "seeds='17' must be"),
        ({"seeds": [1.5]}, r"seeds=\[1.5\] must be"),
        ({"seeds": 1, "brokers": 0}, "brokers=0 must be a whole number from 1 to 26"),
        ({"seeds": 1, "flush": "never"}, "flush='never' must be 'sync' or 'async'"),
        ({"seeds": 1, "faults": ["fire"]}, "no fault 'fire': there are power loss, kill"),
        ({"seeds": 1, "faults": "kill"}, r"must be a list: \['kill'\]"),
        ({"seeds": 1, "timeout_s": -1}, "timeout_s"),
        ({"seeds": 1, "colour": "red"}, "no setting 'colour'"),
    ],
)
def test_bad_argument_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        explore(shop, **options)


def test_scenario_must_be_a_coroutine_function() -> None:
    def plain(cluster: ExploredCluster) -> None:
        raise AssertionError

    scenario: Any = plain
    with pytest.raises(UsageError, match="must be `async def`"):
        explore(scenario, seeds=1)


def test_exploration_inside_a_running_loop_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="no `async def`"):
            explore(shop, seeds=1)

    asyncio.run(main())
