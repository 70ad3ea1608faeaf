"""Everything at once: each way to send and to consume, while everything breaks that can.

What is promised then: what was acknowledged is there, and every group has had all of it; messages
of one key keep their order, and one member at a time has them; transactions end as their local
ones did, and batches are whole. Legitimate are: duplicates, since answers are lost and members die;
and times that are not kept by brokers whose clocks are set while they are away.
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from ternmq_client.admin import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_model.errors import TernError
from ternmq_model.route import TopicConfig
from ternmq_store.config import FlushMode
from tests.support.history import id_of
from tests.support.memory_network import no_loss, random_loss
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
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.virtual_time import run_in_virtual_time

CLIENT: Final = ClientConfig(nameservers=(NAMESERVER,))
IS_SOAK: Final = bool(os.environ.get("TERNMQ_SOAK"))
SEEDS: Final = range(1000 if IS_SOAK else 4)
CASTERS: Final = ("cast-1", "cast-2")
MEMBERS: Final = (
    *((CONCURRENT, f"con-{number}") for number in (1, 2)),
    *((ORDERLY, f"ord-{number}") for number in (1, 2, 3)),
    *((FILTERED, f"fil-{number}") for number in (1, 2)),
    *((PULLING, f"pul-{number}") for number in (1, 2)),
    *((BROADCAST, name) for name in CASTERS),
)


async def trouble(load: Load, name: str, mode: FlushMode, sending: asyncio.Task[None]) -> None:
    """Let a broker die or stop, and parts of the network fail, while there is sending and after."""
    cluster, random = load.cluster, load.cluster.random
    left = 2
    while left > 0:
        left -= sending.done() or left > 1
        await asyncio.sleep(random.random() * 10)
        match random.randrange(6):
            case 0:
                cluster.kill(name)
            case 1 if mode is FlushMode.SYNC:
                cluster.lose_power(name)
            case 2:
                await cluster.stop(name)
            case 3:
                for _ in range(random.randrange(1, 4)):
                    cluster.network.partition(name, random.choice(["ns", *load.hosts]))
                await asyncio.sleep(random.random() * 25)
                cluster.network.heal()
                continue
            case 4:
                cluster.network.loss = random_loss(random, request=0.05, reply=0.1)
                await asyncio.sleep(random.random() * 5)
                cluster.network.loss = no_loss
                continue
            case _:
                cluster.network.cut(random.choice([name, *load.hosts]))
                continue
        await asyncio.sleep(random.random() * 4)
        if not load.keeps_time:
            cluster.clock_offsets_ms[name] = random.randrange(-20_000, 20_000)
        load.starts_s[name].append(asyncio.get_running_loop().time())
        await cluster.start(name)


async def operate(load: Load) -> None:
    """Reset groups to where topics begin, and give a topic more queues, until cancelled."""
    cluster, random = load.cluster, load.cluster.random
    async with AdminClient(CLIENT, env=cluster.environment("operator")) as admin:
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
    async with AdminClient(CLIENT, env=cluster.environment("operator")) as admin:
        for group in (CONCURRENT, ORDERLY, FILTERED, PULLING):
            behind = [each for each in (await admin.describe_group(group)).progress if each.lag]
            assert not behind, f"{group}: {behind}"


async def run(seed: int, folder: Path, count: int) -> None:
    mode = FlushMode.ASYNC if seed % 3 == 2 else FlushMode.SYNC
    async with simulated_cluster(seed, mode=mode) as cluster:
        cluster.history.stored_twice_allowed = True
        load = Load(cluster, folder, keeps_time=cluster.random.random() < 0.7)
        for topic in (PLAIN, KEYED, PAID):
            await cluster.put_topic(topic, 2)
        async with AdminClient(CLIENT, env=cluster.environment("operator")) as admin:
            await admin.set_topic_order(KEYED, "a:2;b:2")  # keys stay while a broker is away
        members = [
            cluster.tasks.spawn(load.come_and_go(group, name), name) for group, name in MEMBERS
        ]
        members.append(cluster.tasks.spawn(load.pay_and_die(), "payers"))
        members.append(cluster.tasks.spawn(operate(load), "operator"))
        sending = cluster.tasks.spawn(send_all(load, count), "sending")
        await asyncio.gather(*(trouble(load, name, mode, sending) for name in cluster.running))
        await sending
        cluster.network.heal()
        cluster.network.loss = no_loss
        for task in members:
            task.cancel()
        await asyncio.wait(members)
        heirs = [Life(f"{name}-last") for _, name in MEMBERS]
        async with load.payer("heir"), asyncio.TaskGroup() as group:
            last = [
                group.create_task(load.live_on(kind, name, life))
                for (kind, name), life in zip(MEMBERS, heirs, strict=True)
            ]
            await asyncio.sleep(150)
            await consumed(load)
            for task in last:
                task.cancel()
        await check_progress(cluster)
        for topic in (PLAIN, KEYED, PAID):
            await cluster.scan(topic, groups=[CONCURRENT] if topic == PLAIN else ())
        load.decide()
        cluster.history.check(load.rules(CASTERS), seed=seed)
        load.check_batches()
        load.check_calls()


@pytest.mark.parametrize("seed", SEEDS)
def test_all_promises_hold_while_everything_breaks(seed: int, tmp_path: Path) -> None:
    run_in_virtual_time(run(seed, tmp_path, 40 + seed % 5 * 40 if IS_SOAK else 60))
