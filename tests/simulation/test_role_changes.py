"""Changes of role at awkward moments: nobody becomes a second master, none is forgotten."""

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_broker.replication.lives.asking import Asked
from ternmq_model.errors import RefusedError
from ternmq_store.disk.state_file import replace_file
from tests.support.brokers import Client, bodies
from tests.support.members import Members, members, until
from tests.support.virtual_time import run_in_virtual_time

STATE = Path("/broker/config/replication.json")


async def two(group: Members) -> Client:
    """Start a master `m` and its slave `s` with a topic of one queue; return a client of `m`."""
    await group.start("m")
    await group.start("s", broker_id=1)
    client = await group.client("m")
    await client.put_topic("A", 1)
    await client.send("A", b"1")
    await group.followed("m", "s")
    return client


async def is_master(group: Members, host: str) -> bool:
    """Tell whether a member serves as the master."""
    return (await group.status(host)).broker_id == 0


def test_a_slave_that_its_living_master_refuses_is_not_promoted_unless_by_force() -> None:
    async def main() -> None:
        async with members() as group:
            group.nameservers = ("away",)
            await group.start("s")
            client = await group.client("s")
            await client.put_topic("A", 1)
            for _ in range(20):
                await client.send("A", b"of another store")
            await group.stop("s")
            group.nameservers = ("ns",)
            await group.start("m")
            await group.start("s", broker_id=1)
            with pytest.raises(RefusedError, match="its master is alive"):
                await group.promote("s")
            assert await is_master(group, "m")

    run_in_virtual_time(main())


def test_a_slave_whose_master_returns_while_others_are_asked_is_not_promoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with members() as group:
            await two(group)
            await group.stop("m")
            asker = group.broker("s").life.member.asker
            ask = asker.ask

            async def ask_slowly(*, own_id: int | None = None) -> Asked:
                asked = await ask(own_id=own_id)
                await group.start("m")
                await group.followed("m", "s")
                return asked

            monkeypatch.setattr(asker, "ask", ask_slowly)
            with pytest.raises(RefusedError, match="its master is alive"):
                await group.promote("s")
            assert await is_master(group, "m")

    run_in_virtual_time(main())


def test_a_slave_is_not_promoted_while_another_one_follows_the_master() -> None:
    async def main() -> None:
        async with members(role=BrokerRole.SYNC_MASTER) as group:
            client = await two(group)
            await group.start("t", broker_id=2)
            await group.followed("m", "t")
            group.network.partition("m", "s")
            await until(lambda: is_left(group, "s"))
            # With `t` the master goes on to acknowledge what `s` will never have.
            with pytest.raises(RefusedError, match="its master is alive"):
                await group.promote("s")
            assert not (await client.send("A", b"2")).status.code
            group.kill("m")
            await until(lambda: is_left(group, "t"))
            await group.promote("t")
            await until(lambda: is_master(group, "t"))

    async def is_left(group: Members, host: str) -> bool:
        return not (await group.status(host)).following.is_connected

    run_in_virtual_time(main())


def test_a_master_that_lost_its_disk_is_none_while_a_slave_has_what_was_there() -> None:
    async def main() -> None:
        async with members() as group:
            await two(group)
            group.kill("m")
            del group.disks["m"]
            await group.start("m")
            await until(lambda: slave_of_nobody(group))
            await group.promote("s")
            await until(lambda: is_master(group, "s"))
            await group.followed("s", "m")

    async def slave_of_nobody(group: Members) -> bool:
        return (await group.status("m")).role == "slave"

    run_in_virtual_time(main())


def test_a_broker_that_lost_its_disk_and_had_no_slave_begins_anew() -> None:
    async def main() -> None:
        async with members() as group:
            await group.start("m")
            await group.stop("m")
            del group.disks["m"]
            await group.start("m")
            await (await group.client("m")).send("A", queue_id=0)
            assert (await group.status("m")).highest_epoch == 1

    run_in_virtual_time(main())


def test_a_member_that_is_forced_before_its_log_was_cut_has_the_epoch_that_it_begins() -> None:
    async def main() -> None:
        async with members() as group:
            await two(group)
            await group.stop("m")
            await group.stop("s")
            kept = json.loads(group.disks["s"].nodes[STATE].data.tobytes())
            cut = {"keep_to": kept["confirmed"], "starts_over": False, "file_bytes": 1 << 20}
            kept["cut"] = cut
            replace_file(group.disks["s"], STATE, json.dumps(kept).encode())
            await group.start("s", broker_id=1, force_master=True)
            status = await group.status("s")
            assert status.epochs[-1].number == status.highest_epoch == 1_001_000
            await group.start("m")
            await group.followed("s", "m")

    run_in_virtual_time(main())


def test_a_slave_that_is_forced_in_vain_serves_no_more_than_what_is_confirmed() -> None:
    async def main() -> None:
        async with members() as group:
            client = await two(group)
            await group.start("t", broker_id=2)
            await group.followed("m", "t")
            confirmed = (await group.status("s")).confirm_offset
            await client.send("A", b"not confirmed")
            await group.followed("m", "s")
            for host in ("m", "s", "t"):
                await group.stop(host)
            change("s", group, confirmed=confirmed)
            change("t", group, highestEpoch=1_001_000)
            await group.start("t", broker_id=2)
            await group.start("s", broker_id=1, force_master=True)
            await until(lambda: is_slave(group, "s"))
            assert bodies(await (await group.client("s")).pull("A")) == [b"1"]
            assert (await group.status("s")).confirm_offset == confirmed

    def change(host: str, group: Members, **changes: int) -> None:
        kept = json.loads(group.disks[host].nodes[STATE].data.tobytes())
        replace_file(group.disks[host], STATE, json.dumps({**kept, **changes}).encode())

    async def is_slave(group: Members, host: str) -> bool:
        return (await group.status(host)).broker_id == 1

    run_in_virtual_time(main())


def test_a_slave_that_never_followed_and_was_forced_is_the_master_from_then_on() -> None:
    async def main() -> None:
        async with members() as group:
            await group.start("s", broker_id=1, force_master=True)
            await (await group.client("s")).send("A", queue_id=0)
            await group.stop("s")
            await group.start("s", broker_id=1)
            assert await is_master(group, "s")

    run_in_virtual_time(main())


def test_a_slave_with_another_brokers_log_deposes_no_master_whatever_its_epoch() -> None:
    async def main() -> None:
        async with members() as group:
            group.nameservers = ("away",)
            await group.start("s")
            await (await group.client("s")).send("A", b"of another store", queue_id=0)
            group.lose_power("s")
            await group.start("s")
            assert (await group.status("s")).highest_epoch == 2
            await group.stop("s")
            group.nameservers = ("ns",)
            client = await two(group)
            await asyncio.sleep(10)
            assert await group.registered() == {0: ("m", 1), 1: ("s", 0)}
            await client.send("A", b"2")
            await group.stop("m")
            await group.start("m")
            assert await is_master(group, "m")

    async def two(group: Members) -> Client:
        await group.start("m")
        client = await group.client("m")
        await client.put_topic("A", 1)
        await client.send("A", b"1")
        await group.start("s", broker_id=1)
        return client

    run_in_virtual_time(main())


@pytest.mark.parametrize("after_ms", [2, 9, 21, 33, 60, 400, 1000])
def test_a_master_that_dies_while_it_returns_to_be_a_slave_follows_at_the_next_start(
    after_ms: int,
) -> None:
    async def main() -> None:
        async with members() as group:
            client = await two(group)
            group.network.partition("m", "s")
            for _ in range(5):
                await client.send("A", b"lost")
            group.kill("m")
            await group.promote("s")
            await until(lambda: is_master(group, "s"))
            await (await group.client("s")).send("A", b"new", queue_id=0)
            group.network.heal()
            for end in (group.kill, group.lose_power):
                starting = asyncio.ensure_future(group.start("m"))
                await asyncio.sleep(after_ms / 1000)
                end("m")
                starting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await starting
            await group.start("m")
            await group.followed("s", "m")
            assert (await group.status("m")).role == "slave"
            reply = await (await group.client("m")).pull("A")
            assert bodies(reply) == [b"1", b"new"]

    run_in_virtual_time(main())
