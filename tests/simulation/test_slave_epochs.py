"""Readers of a slave that outlived the start of an epoch are of that epoch, too."""

import asyncio
from dataclasses import replace
from random import Random

from tests.simulation.test_slave_reads import FIRST, consumer_at, until
from tests.support.paired import Pair, paired
from tests.support.virtual_time import run_in_virtual_time


async def crash(pair: Pair) -> None:
    """Let the master crash and start again: a new epoch begins."""
    left = pair.disks["master"].lose_power(Random(1))
    await pair.stop()
    pair.disks["master"] = left
    await pair.start()


async def stop_and_return(pair: Pair) -> None:
    """Let the master go and come back; the slave is read from meanwhile, to its end."""
    await until(pair.has_all)
    await asyncio.sleep(10)
    await pair.start()
    await asyncio.sleep(10)
    await pair.send(10)
    await until(pair.has_all)


def test_who_has_read_from_a_slave_reads_nothing_again_at_the_master() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.send(20)
            await pair.start_slave()
            await pair.stop("slave")
            await pair.start_slave()
            await crash(pair)
            await pair.send(200)
            await pair.synced()
            few = replace(FIRST, pull_threshold_messages=10)
            async with consumer_at(pair, "c1", few):
                await until(lambda: len(pair.heard) >= 50)
                await pair.stop()
                await stop_and_return(pair)
                assert len(pair.heard) == 230

    run_in_virtual_time(main())


def test_who_has_begun_at_a_slave_reads_nothing_again_at_the_master() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.send(20)
            await pair.start_slave()
            await pair.stop("slave")
            await pair.start_slave()
            await crash(pair)
            await pair.send(40)
            await pair.synced()
            async with consumer_at(pair, "c1") as consumer:
                await until(pair.has_all)
                await consumer.commit()
            await asyncio.sleep(2)
            await pair.stop()
            async with consumer_at(pair, "c2") as consumer:
                await consumer.assigned()
                await stop_and_return(pair)
                assert len(pair.heard) == 70

    run_in_virtual_time(main())
