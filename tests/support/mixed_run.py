"""How a mixed load runs: who lives on a simulated cluster, what is sent, how it comes to rest."""

import asyncio
from contextlib import suppress
from typing import Final

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_model.errors import TernError
from ternmq_model.route import TopicConfig
from tests.support.history import id_of
from tests.support.mixed_load import (
    BROADCAST,
    CONCURRENT,
    FILTERED,
    KEYED,
    ORDERLY,
    PAID,
    PLAIN,
    PULLING,
    Life,
    Load,
)
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster
from tests.support.slow_jobs import slow_jobs

CLIENT: Final = ClientConfig(nameservers=(NAMESERVER,))
CASTERS: Final = ("cast-1", "cast-2")
MEMBERS: Final = (
    *((CONCURRENT, f"con-{number}") for number in (1, 2)),
    *((ORDERLY, f"ord-{number}") for number in (1, 2, 3)),
    *((FILTERED, f"fil-{number}") for number in (1, 2)),
    *((PULLING, f"pul-{number}") for number in (1, 2)),
    *((BROADCAST, name) for name in CASTERS),
)


def clients_of(load: Load) -> "list[asyncio.Task[None]]":
    """Let members of every group, payers and an operator come and go until they are cancelled."""
    tasks = load.cluster.tasks
    clients = [tasks.spawn(load.come_and_go(group, name), name) for group, name in MEMBERS]
    clients.append(tasks.spawn(load.pay_and_die(), "payers"))
    clients.append(tasks.spawn(operate(load), "operator"))
    return clients


async def operate(load: Load) -> None:
    """Reset groups to where topics begin, and give a topic more queues, until cancelled."""
    cluster, random = load.cluster, load.cluster.random
    async with AdminClient(client=CLIENT, env=cluster.environment("operator")) as admin:
        while True:
            await asyncio.sleep(random.random() * 40)
            with suppress(TernError):
                if random.random() < 0.3:
                    await admin.create_topic(TopicConfig(PLAIN, 3, 3))
                    continue
                group, topic = random.choice(
                    ((CONCURRENT, PLAIN), (FILTERED, PLAIN), (ORDERLY, KEYED), (PULLING, PAID))
                )
                await admin.reset_offsets(group, topic, first=True)


async def send_all(load: Load, count: int) -> None:
    """Send so many messages of every kind, and wait until each is answered or given up."""
    cluster, random = load.cluster, load.cluster.random
    async with cluster.producer() as producer:
        tasks = [
            cluster.tasks.spawn(
                load.send_in_order(producer, f"key-{key}", count // 8), f"key {key}"
            )
            for key in range(4)
        ]
        for _ in range(count):
            tasks.append(cluster.tasks.spawn(load.send_one(producer), "send"))
            await asyncio.sleep(random.random() * 0.4)
        await asyncio.wait(tasks)
        await producer.flush()
        for task in tasks:
            task.result()


async def consumed(load: Load, timeout_s: float = 600) -> None:
    """Wait until every group has all that lies there, or a time is over; the check tells."""
    cluster = load.cluster
    lying = {
        topic: {id_of(each.body) for _, each in await cluster.records(topic)}
        for topic in (PLAIN, KEYED, PAID)
    }
    wanted = {
        CONCURRENT: lying[PLAIN] - load.doomed,
        ORDERLY: lying[KEYED],
        FILTERED: lying[PLAIN] & load.taken,
        PULLING: lying[PLAIN] | lying[PAID],
        **{name: lying[PLAIN] | lying[PAID] for name in CASTERS},
    }
    letters = load.doomed & lying[PLAIN]
    while timeout_s > 0:
        for each in cluster.history.deliveries:
            if each.is_finished:
                wanted[each.group].discard(each.message_id)
        letters -= {id_of(each.body) for _, each in await cluster.records(f"%DLQ%{CONCURRENT}")}
        if not letters and not any(wanted.values()):
            return
        await asyncio.sleep(5)
        timeout_s -= 5


async def check_progress(cluster: SimulatedCluster) -> None:
    """Assert that every group that shares its messages has committed all of them."""
    async with AdminClient(client=CLIENT, env=cluster.environment("operator")) as admin:
        for group in (CONCURRENT, ORDERLY, FILTERED, PULLING):
            behind = [each for each in (await admin.describe_group(group)).progress if each.lag]
            assert not behind, f"{group}: {behind}"


async def consume_rest(load: Load) -> None:
    """Let one last life of each member, and a payer, have all that is left."""
    heirs = [Life(f"{name}-last") for _, name in MEMBERS]
    async with load.payer("heir"), asyncio.TaskGroup() as group:
        last = [
            group.create_task(load.live_on(kind, name, life))
            for (kind, name), life in zip(MEMBERS, heirs, strict=True)
        ]
        with slow_jobs(2):
            await asyncio.sleep(150)
        await consumed(load)
        for task in last:
            task.cancel()
