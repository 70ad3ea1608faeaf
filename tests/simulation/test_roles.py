"""In which role a member begins a life, and how a master learns that it is none any more."""

import asyncio
from pathlib import Path

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_model.errors import ClosedError, RefusedError, TernError
from ternmq_model.response_code import ResponseCode
from tests.support.brokers import Client, bodies
from tests.support.members import Members, members, soon, until
from tests.support.virtual_time import run_in_virtual_time

PROMOTED = 1_001_000


async def two(group: Members) -> Client:
    """Start a master `m` and its slave `s` with a topic of one queue; return a client of `m`."""
    await group.start("m")
    await group.start("s", broker_id=1)
    client = await group.client("m")
    await client.put_topic("A", 1)
    await client.send("A", b"1")
    await group.followed("m", "s")
    return client


async def epoch_of(group: Members, host: str) -> int:
    """Return the newest epoch of a member's log."""
    return (await group.status(host)).epochs[-1].number


async def has_role(group: Members, host: str, role: str) -> bool:
    """Tell whether a member serves in a role."""
    return (await group.status(host)).role == role


def test_a_broker_that_nobody_follows_starts_without_asking_anybody() -> None:
    async def main() -> None:
        async with members(nameservers=()) as group:
            group.nameservers = ("away",)
            for epoch in (1, 2, 2):
                await group.start("m")
                client = await group.client("m")
                await client.send("A", queue_id=0)
                assert await epoch_of(group, "m") == epoch
                if epoch == 1:
                    group.lose_power("m")
                else:
                    await group.stop("m")

    run_in_virtual_time(main())


def test_a_master_that_was_followed_waits_until_somebody_confirms_it() -> None:
    async def main() -> None:
        async with members() as group:
            await two(group)
            await group.stop("s")
            await group.stop("m")
            await group.stop_nameserver("ns")
            await group.start("m", wait_s=20)
            assert not group.serves("m")
            with pytest.raises(ClosedError):
                _ = group.broker("m").address
            # One without memory confirms nothing.
            await group.start_nameserver("ns")
            await asyncio.sleep(20)
            assert not group.serves("m")
            await group.start("s", broker_id=1)
            await soon(lambda: group.serves("m"), within_s=5)
            assert await epoch_of(group, "m") == 1
            await group.followed("m", "s")

    run_in_virtual_time(main())


def test_a_nameserver_with_a_memory_confirms_a_master(tmp_path: Path) -> None:
    async def main() -> None:
        async with members(nameservers=()) as group:
            group.nameservers = ("ns",)
            await group.start_nameserver("ns", tmp_path)
            await two(group)
            await group.stop("s")
            group.kill("m")
            await group.stop_nameserver("ns")
            await group.start("m", wait_s=20)
            assert not group.serves("m")
            await group.start_nameserver("ns", tmp_path)
            await soon(lambda: group.serves("m"), within_s=5)
            assert await epoch_of(group, "m") == 2
            await group.stop("m")

    run_in_virtual_time(main())


def test_a_master_that_waits_leaves_at_once_and_still_begins_an_epoch_later() -> None:
    async def main() -> None:
        async with members() as group:
            await two(group)
            await group.stop("s")
            group.kill("m")
            await group.stop_nameserver("ns")
            await group.start("m", wait_s=5)
            assert not group.serves("m")
            begun_s = asyncio.get_running_loop().time()
            await group.stop("m")
            assert asyncio.get_running_loop().time() - begun_s < 1
            await group.start("s", broker_id=1)
            await group.start("m")
            assert await epoch_of(group, "m") == 2

    run_in_virtual_time(main())


def test_force_starts_a_master_that_nobody_confirms() -> None:
    async def main() -> None:
        async with members() as group:
            await two(group)
            await group.stop("s")
            group.kill("m")
            await group.stop_nameserver("ns")
            await group.start("m", force_master=True)
            assert group.serves("m")
            assert await epoch_of(group, "m") == 2
            client = await group.client("m")
            await client.send("A", b"2")
            await group.start_nameserver("ns")
            await group.start("s", broker_id=1)
            await group.followed("m", "s")

    run_in_virtual_time(main())


def test_force_makes_a_slave_the_master_as_a_promotion_does() -> None:
    async def main() -> None:
        async with members() as group:
            await two(group)
            await group.stop("m")
            await group.stop("s")
            await group.start("s", broker_id=1, force_master=True)
            assert await epoch_of(group, "s") == PROMOTED
            await group.start("m")
            await group.followed("s", "m")
            assert (await group.status("m")).broker_id == 100

    run_in_virtual_time(main())


def test_a_sync_master_with_an_empty_store_waits_for_one_answer() -> None:
    async def main() -> None:
        async with members() as group:
            await group.stop_nameserver("ns")
            await group.start("m", wait_s=10, role=BrokerRole.SYNC_MASTER)
            assert not group.serves("m")
            await group.start_nameserver("ns")
            await soon(lambda: group.serves("m"), within_s=5)

    run_in_virtual_time(main())


def test_a_master_that_lost_its_disk_comes_back_as_the_slave_of_the_promoted_one() -> None:
    async def main() -> None:
        async with members(role=BrokerRole.SYNC_MASTER) as group:
            await two(group)
            group.kill("m")
            del group.disks["m"]
            await group.promote("s")
            await until(lambda: has_role(group, "s", "sync_master"))
            await group.start("m")
            await group.followed("s", "m")
            assert bodies(await (await group.client("m")).pull("A")) == [b"1"]
            assert (await group.status("s")).in_sync_now == 2

    run_in_virtual_time(main())


def test_a_standalone_broker_that_lost_its_disk_serves_nothing_under_its_old_name() -> None:
    async def main() -> None:
        async with members() as group:
            await group.start("m")
            group.lose_power("m")
            await group.start("m")
            assert await epoch_of(group, "m") == 2
            await group.stop("m")
            del group.disks["m"]
            await group.start("m")
            await until(lambda: has_role(group, "m", "slave"))
            with pytest.raises(RefusedError, match="slave"):
                await (await group.client("m")).send("A", queue_id=0)
            await group.stop("m")
            await group.start("m", force_master=True)
            assert await epoch_of(group, "m") > 2
            await (await group.client("m")).send("A", queue_id=0)

    run_in_virtual_time(main())


def test_a_master_that_runs_learns_of_a_promotion_from_a_nameserver_within_seconds() -> None:
    async def main() -> None:
        async with members() as group:
            client = await two(group)
            group.network.partition("m", "s")
            await group.promote("s", is_forced=True)
            promoted_s = asyncio.get_running_loop().time()
            while True:
                try:
                    await client.send("A", b"x")
                except TernError:
                    break
                await asyncio.sleep(0.05)
            assert asyncio.get_running_loop().time() - promoted_s < 3
            await until(lambda: has_role(group, "m", "slave"), within_s=5)
            group.network.heal()
            await group.followed("s", "m")
            assert await group.registered() == {0: ("s", PROMOTED), 100: ("m", PROMOTED)}

    run_in_virtual_time(main())


def test_a_send_that_waits_when_its_master_is_fenced_may_have_happened() -> None:
    async def main() -> None:
        async with members() as group:
            client = await two(group)
            group.disk_s["m"] = 4.0
            sending = asyncio.ensure_future(client.send("A", b"x"))
            await asyncio.sleep(0.1)
            group.network.partition("m", "s")
            begun_s = asyncio.get_running_loop().time()
            await group.promote("s", is_forced=True)
            with pytest.raises(TernError) as caught:
                await sending
            assert asyncio.get_running_loop().time() - begun_s < 3.5
            assert caught.value.may_have_happened
            group.disk_s.clear()

    run_in_virtual_time(main())


def test_a_master_is_fenced_by_a_nameserver_that_only_remembers(tmp_path: Path) -> None:
    async def main() -> None:
        async with members(nameservers=()) as group:
            group.nameservers = ("ns",)
            await group.start_nameserver("ns", tmp_path)
            await two(group)
            group.network.partition("m", "ns")
            group.network.partition("m", "s")
            await group.promote("s", is_forced=True)
            await until(lambda: has_role(group, "s", "async_master"))
            await group.stop("s")
            assert await has_role(group, "m", "async_master")
            group.network.heal()
            await until(lambda: has_role(group, "m", "slave"), within_s=5)
            with pytest.raises(RefusedError) as caught:
                await (await group.client("m")).send("A", b"x")
            assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
            await group.start("s", broker_id=1)
            await group.followed("s", "m")
            await group.stop("m")
            await group.stop("s")

    run_in_virtual_time(main())
