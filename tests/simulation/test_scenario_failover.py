"""Everything that clients do, on a broker whose members die, are promoted and come back in turns.

What is promised then by a sync master: all that `test_scenario_everything` says, of each message
that was answered with SEND_OK, but for what is sent back to it while it is alone. By an async
master: what a promotion cut is gone, wherever it was on its way to; the rest is whole, in order, at
its time, and consumed; nothing is stuck.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_client.admin.admin_client import AdminClient
from ternmq_model.errors import TernError
from ternmq_store.config import FlushMode
from ternmq_testing.memory.memory_network import no_loss, random_loss
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import IS_SOAK, seeds
from tests.support.history import GroupRules, Outcome
from tests.support.mixed_load import CONCURRENT, FILTERED, KEYED, PAID, PLAIN, Load
from tests.support.mixed_run import (
    CASTERS,
    CLIENT,
    check_progress,
    clients_of,
    consume_rest,
    send_all,
)
from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import caught_up, compare_logs, promote

SEEDS: Final = seeds(3, soak=1000)
MEMBERS: Final = ("a", "a-1")
PROMOTION_TIMEOUT_S: Final = 60


def other_than(name: str) -> str:
    return MEMBERS[1 - MEMBERS.index(name)]


async def end(cluster: SimulatedCluster, name: str) -> None:
    """End a member in one way or another; one that flushes late keeps its power."""
    match cluster.random.randrange(4):
        case 0 if cluster.mode is FlushMode.SYNC:
            cluster.lose_power(name)
        case 1:
            await cluster.stop(name)
        case 2:
            cluster.destroy_disk(name)
        case _:
            cluster.kill(name)


async def promoted(load: Load, name: str) -> None:
    """Promote a slave, as soon as nothing speaks against it; locks are the new master's then."""
    async with asyncio.timeout(PROMOTION_TIMEOUT_S):
        while True:
            load.starts_s["a"].append(asyncio.get_running_loop().time())
            with suppress(TernError):
                await promote(load.cluster, name)
                break
            await asyncio.sleep(1)
    load.starts_s["a"].append(asyncio.get_running_loop().time())


async def replace_master(load: Load) -> None:
    """Let the master end and its slave take its place; the old one comes back, sooner or later."""
    cluster, random = load.cluster, load.cluster.random
    await caught_up(cluster, "a")
    if random.random() < 0.7:
        await asyncio.sleep(random.random() * 8)
    (master,) = cluster.masters()
    await end(cluster, master)
    await asyncio.sleep(random.random() * 4)
    await promoted(load, other_than(master))
    await asyncio.sleep(random.random() * 5)
    await cluster.start(master)


async def cut_off_master(load: Load) -> None:
    """Let the master go on alone while its slave is promoted; it comes back with its own tail."""
    cluster, random = load.cluster, load.cluster.random
    (master,) = cluster.masters()
    slave = other_than(master)
    cluster.network.partition(master, slave)
    for host in random.sample(["ns", *load.hosts], random.randrange(4)):
        cluster.network.partition(master, host)
    await asyncio.sleep(random.random() * 8)
    await promoted(load, slave)
    await asyncio.sleep(random.random() * 8)
    cluster.network.heal()


async def restart_one(load: Load) -> None:
    """Let a member end and come back as what it was."""
    cluster, random = load.cluster, load.cluster.random
    name = random.choice(cluster.running)
    if random.random() < 0.5 and cluster.mode is FlushMode.SYNC:
        cluster.lose_power(name)
    else:
        cluster.kill(name)
    await asyncio.sleep(random.random() * 4)
    load.starts_s["a"].append(asyncio.get_running_loop().time())
    await cluster.start(name)


async def trouble(load: Load, sending: asyncio.Task[None]) -> bool:
    """Let members die, lose all, be cut off, be promoted, while there is sending and after.

    Returns:
        Whether a master was alone when it was replaced: what it stored meanwhile is cut.
    """
    cluster, random = load.cluster, load.cluster.random
    was_alone = False
    left = 2
    while left > 0:
        left -= sending.done() or left > 1
        await asyncio.sleep(random.random() * 10)
        match random.randrange(6):
            case 0 | 1 | 2:
                await replace_master(load)
            case 3:
                was_alone = True
                await cut_off_master(load)
            case 4:
                await restart_one(load)
            case _:
                cluster.network.loss = random_loss(random, request=0.05, reply=0.1)
                await asyncio.sleep(random.random() * 5)
                cluster.network.loss = no_loss
        if random.random() < 0.5:
            await caught_up(cluster, "a")
    return was_alone


def rules_of(load: Load, role: BrokerRole, *, was_alone: bool) -> list[GroupRules]:
    """Return what every group was promised: what is sent back to a master alone may be cut.

    So may what is sent to an asynchronous one, which tells nobody that it is alone.
    """
    rules = load.rules(CASTERS)
    if role is BrokerRole.ASYNC_MASTER:
        for each in load.cluster.history.sent.values():
            if each.outcome is Outcome.STORED:
                each.outcome = Outcome.UNKNOWN
        rules = [each for each in rules if each.group not in (CONCURRENT, FILTERED)]
    elif was_alone:
        rules = [
            replace(each, is_whole=each.is_whole and each.group not in (CONCURRENT, FILTERED))
            for each in rules
        ]
    return rules


async def run(seed: int, folder: Path, role: BrokerRole, count: int) -> None:
    mode = FlushMode.ASYNC if seed % 3 == 2 else FlushMode.SYNC
    async with simulated_cluster(seed, brokers=MEMBERS, mode=mode, role=role) as cluster:
        cluster.history.stored_twice_allowed = cluster.history.moves_allowed = True
        load = Load(cluster, folder)
        for topic in (PLAIN, KEYED, PAID):
            await cluster.put_topic(topic, 2)
        async with AdminClient(client=CLIENT, env=cluster.environment("operator")) as admin:
            await admin.set_topic_order(KEYED, "a:2")
        await caught_up(cluster, "a")
        clients = clients_of(load)
        sending = cluster.tasks.spawn(send_all(load, count), "sending")
        was_alone = await trouble(load, sending)
        await sending
        for task in clients:
            task.cancel()
        await asyncio.wait(clients)
        await consume_rest(load)
        await check_progress(cluster)
        await compare_logs(cluster, "a")
        for topic in (PLAIN, KEYED, PAID):
            await cluster.scan(topic, groups=[CONCURRENT] if topic == PLAIN else ())
        load.decide()
        cluster.history.check(rules_of(load, role, was_alone=was_alone), seed=seed)
        load.check_batches()
        load.check_calls()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("role", [BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER])
def test_all_promises_hold_while_masters_are_replaced(
    role: BrokerRole, seed: int, tmp_path: Path
) -> None:
    run_in_virtual_time(run(seed, tmp_path, role, 40 + seed % 5 * 40 if IS_SOAK else 60))
