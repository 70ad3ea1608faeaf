"""The model's stories, told with real brokers: promises hold, and all end with one log.

`tests/support/epoch_model.py` draws what happens to whom: starts, ends, partitions, promotions. The
steps that are the product's own work (following, cutting, registering) it takes by itself here.
"""

import asyncio
import random
from contextlib import suppress

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_model.errors import TernError
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.epoch_model import faults, steps
from tests.support.epoch_world import Budget, Setup, first_world
from tests.support.examples import seeds
from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import compare_logs, promote

TOPIC = "payments"
SEEDS = seeds(8, soak=1000)
HOSTS = {0: "a", 1: "a-1", -1: "ns", -2: "ns2"}
BUDGET = Budget(appends=20, crashes=4, stops=2, cuts=3, promotions=3)
BY_HAND = ("start", "kill", "lose", "stop", "part", "heal", "promote", "append")


def story(seed: int) -> list[str]:
    """Return what is done by hand in a story that the model draws; it is as the model says."""
    chance = random.Random(seed)
    world = first_world(Setup(nameservers=2), BUDGET)
    told: list[str] = []
    for _ in range(80):
        possible = list(steps(world))
        if not possible:
            break
        label, world = chance.choice(possible)
        assert not faults(world)
        if label.startswith(BY_HAND):
            told.append(label)
    return told


async def do(cluster: SimulatedCluster, label: str) -> None:
    """Do one thing; what is not possible here and now is left out."""
    verb, *words = label.replace("power ", "").replace("(", "").replace(")", "").split(" ")
    hosts = [HOSTS[int(word.strip(","))] for word in words]
    first = hosts[0]
    runs = first in cluster.running
    match verb:
        case "start" if not runs:
            cluster.begin(first)
        case "kill" if runs:
            cluster.kill(first)
        case "lose" if runs:
            cluster.lose_power(first)
        case "stop" if runs:
            await cluster.stop(first)
        case "part":
            cluster.network.partition(*hosts)
        case "heal":
            cluster.network.heal()
        case "promote" if runs:
            with suppress(TernError):
                await promote(cluster, first)
        case _:
            pass


async def end_well(cluster: SimulatedCluster) -> None:
    """Heal and start everything; promote somebody if nobody is the master."""
    cluster.network.heal()
    for name in ("a", "a-1"):
        if name not in cluster.running:
            cluster.begin(name)
    for _ in range(40):
        if cluster.masters():
            return
        await asyncio.sleep(1)
    for name in ("a-1", "a"):
        with suppress(TernError):
            await promote(cluster, name)
            return
    raise AssertionError(f"seed {cluster.seed}: nobody becomes the master")


@pytest.mark.parametrize("seed", SEEDS)
def test_scenario_of_the_epoch_model_ends_well_with_real_brokers(seed: int) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(
                seed,
                brokers=["a", "a-1"],
                mode=FlushMode.SYNC,
                nameservers=2,
                role=BrokerRole.SYNC_MASTER,
            ) as cluster,
            cluster.producer() as producer,
        ):
            sending: list[asyncio.Task[object]] = []
            for label in story(seed):
                if label.startswith("append"):
                    sending.append(cluster.tasks.spawn(cluster.send(producer, TOPIC), "send"))
                else:
                    await do(cluster, label)
                await asyncio.sleep(cluster.random.choice([0.0, 0.1, 1.0, 5.0]))
            await end_well(cluster)
            if sending:
                await asyncio.wait(sending)
            await cluster.send(producer, TOPIC)
            await compare_logs(cluster, "a")
            await cluster.scan(TOPIC)
            cluster.history.stored_twice_allowed = True
            cluster.history.check(seed=seed)

    run_in_virtual_time(main())
