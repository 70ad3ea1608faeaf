"""Containers die, freeze and are cut off under load; the check of the history ends every scenario.

What was acknowledged is there and was consumed by every group, whatever happened.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from ternmq_broker.config import FORMER_MASTER_ID
from ternmq_model.message import SendStatus
from tests.support.container_load import BROKERS, ContainerLoad, container_load
from tests.support.containers import (
    PORTS,
    console,
    container,
    cut_off,
    destroy_data,
    docker,
    is_served,
    join,
    make_anew,
)
from tests.support.processes import eventually

FROZEN_S: Final = 6.0
"""Longer than a sender waits for an answer."""

MEANWHILE: Final = 50
"""Sends that are acknowledged while somebody is gone, and by every broker when it is back."""


async def stop_and_start(load: ContainerLoad, service: str) -> None:
    await docker("stop", container(service))
    await load.until_acknowledged(MEANWHILE)
    await docker("start", container(service))


async def kill_and_start(load: ContainerLoad, service: str) -> None:
    await docker("kill", "--signal", "KILL", container(service))
    await load.until_acknowledged(MEANWHILE)
    await docker("start", container(service))


@pytest.mark.parametrize("fault", [stop_and_start, kill_and_start])
def test_each_container_in_turn_stops_and_returns(
    fault: Callable[[ContainerLoad, str], Awaitable[None]],
) -> None:
    async def main() -> None:
        async with container_load() as load:
            for service in PORTS:
                await fault(load, service)
                await is_whole_again(load, service)

    asyncio.run(main())


@pytest.mark.parametrize("service", ["broker-a", "broker-b-slave"])
def test_frozen_container_resumes(service: str) -> None:
    async def main() -> None:
        async with container_load() as load:
            await docker("pause", container(service))
            await asyncio.sleep(FROZEN_S)
            await docker("unpause", container(service))
            await is_whole_again(load, service)

    asyncio.run(main())


@pytest.mark.parametrize("service", ["broker-b", "broker-a-slave"])
def test_disconnected_container_resumes(service: str) -> None:
    async def main() -> None:
        async with container_load() as load:
            await cut_off(service)
            await asyncio.sleep(FROZEN_S)
            await join(service)
            await is_whole_again(load, service)

    asyncio.run(main())


def test_all_containers_stop_at_once_and_return() -> None:
    async def main() -> None:
        everyone = [container(service) for service in PORTS]
        async with container_load() as load:
            for end in (["stop"], ["kill", "--signal", "KILL"]):
                await docker(*end, *everyone)
                await docker("start", *everyone)
                for service in PORTS:
                    await is_whole_again(load, service)

    asyncio.run(main())


def test_slave_replaces_a_master_whose_disk_is_lost() -> None:
    name, slave = "broker-a", "broker-a-slave"

    async def main() -> None:
        async with container_load() as load:
            # There and back: who was the master and has lost all follows under another id.
            for lost, slave_id in ((name, 1), (slave, FORMER_MASTER_ID)):
                await load.until_followed(name)
                await docker("kill", "--signal", "KILL", container(lost))
                await destroy_data(lost)
                await load.until_acknowledged(MEANWHILE)
                await console("broker", "promote", name, "--broker-id", f"{slave_id}", "--yes")
                await load.until_acknowledged(MEANWHILE, name, SendStatus.SLAVE_NOT_AVAILABLE)
                await make_anew(lost)
                await is_whole_again(load, lost)

    asyncio.run(main())


async def is_whole_again(load: ContainerLoad, service: str) -> None:
    """Wait until a container serves and both brokers take messages, on two disks each."""
    began_s = asyncio.get_running_loop().time()
    assert await eventually(lambda: is_served(service)), f"{service} does not serve"
    for name in BROKERS:
        await load.until_acknowledged(MEANWHILE, name)
    print(f"{service}: whole again in {asyncio.get_running_loop().time() - began_s:.1f} s")
