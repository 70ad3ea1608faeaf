"""Readers of a slave that outlived the start of an epoch are of that epoch, too."""

import asyncio
from dataclasses import replace

from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.numbered import FIRST, NumberedMessages, numbered
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_replicas import replicated, start_slave


async def crash(cluster: SimulatedCluster) -> None:
    """Let the master crash and start again: a new epoch begins."""
    cluster.lose_power("a")
    await cluster.start("a")


async def return_master(messages: NumberedMessages) -> None:
    """Start the master again when its slave was read from to its end, and send some more."""
    await until(messages.all_heard)
    await asyncio.sleep(10)
    await messages.cluster.start("a")
    await asyncio.sleep(10)
    await messages.send(10)
    await until(messages.all_heard)


def test_consumer_that_read_from_slave_reads_nothing_again_at_master() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(20)
            await start_slave(cluster)
            await cluster.stop("a-1")
            await start_slave(cluster)
            await crash(cluster)
            await messages.send(200)
            await replicated(cluster)
            few = replace(FIRST, pull_threshold_messages=10)
            async with messages.consumer("c1", few):
                await until(lambda: len(messages.heard) >= 50)
                await cluster.stop("a")
                await return_master(messages)
                assert len(messages.heard) == 230

    run_in_virtual_time(main())


def test_consumer_that_began_at_slave_reads_nothing_again_at_master() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(20)
            await start_slave(cluster)
            await cluster.stop("a-1")
            await start_slave(cluster)
            await crash(cluster)
            await messages.send(40)
            await replicated(cluster)
            async with messages.consumer("c1") as consumer:
                await until(messages.all_heard)
                await consumer.commit()
            await asyncio.sleep(2)
            await cluster.stop("a")
            async with messages.consumer("c2") as consumer:
                await consumer.assigned()
                await return_master(messages)
                assert len(messages.heard) == 70

    run_in_virtual_time(main())
