"""Everything at once: each way to send and to consume, while everything breaks that can.

What is promised then: what was acknowledged is there, and every group has had all of it; messages
of one key keep their order, and one member at a time has them; transactions end as their local
ones did, and batches are whole. Legitimate are: duplicates, since answers are lost and members die;
and times that are not kept by brokers whose clocks are set while they are away.
"""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_store.config import FlushMode
from ternmq_testing.memory.memory_network import no_loss, random_loss
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import IS_SOAK, seeds
from tests.support.mixed_load import CONCURRENT, KEYED, PAID, PLAIN, Load
from tests.support.mixed_run import (
    CASTERS,
    CLIENT,
    check_progress,
    clients_of,
    consume_rest,
    send_all,
)
from tests.support.simulated_cluster import simulated_cluster

SEEDS: Final = seeds(4, soak=1000)


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


async def run(seed: int, folder: Path, count: int) -> None:
    mode = FlushMode.ASYNC if seed % 3 == 2 else FlushMode.SYNC
    async with simulated_cluster(seed, mode=mode) as cluster:
        cluster.history.stored_twice_allowed = True
        load = Load(cluster, folder, keeps_time=cluster.random.random() < 0.7)
        for topic in (PLAIN, KEYED, PAID):
            await cluster.put_topic(topic, 2)
        async with AdminClient(client=CLIENT, env=cluster.environment("operator")) as admin:
            await admin.set_topic_order(KEYED, "a:2;b:2")  # keys stay while a broker is away
        members = clients_of(load)
        sending = cluster.tasks.spawn(send_all(load, count), "sending")
        await asyncio.gather(*(trouble(load, name, mode, sending) for name in cluster.running))
        await sending
        cluster.network.heal()
        cluster.network.loss = no_loss
        for task in members:
            task.cancel()
        await asyncio.wait(members)
        await consume_rest(load)
        await check_progress(cluster)
        for topic in (PLAIN, KEYED, PAID):
            await cluster.scan(topic, groups=[CONCURRENT] if topic == PLAIN else ())
        load.decide()
        cluster.history.check(load.rules(CASTERS), seed=seed)
        load.check_batches()
        load.check_calls()


@pytest.mark.parametrize("seed", SEEDS)
def test_all_promises_hold_under_all_faults(seed: int, tmp_path: Path) -> None:
    run_in_virtual_time(run(seed, tmp_path, 40 + seed % 5 * 40 if IS_SOAK else 60))
