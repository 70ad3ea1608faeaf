import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

import pytest

from ternmq_broker.replication.protocol import epochs_to_pb
from ternmq_broker.state.replication_record import LogCut
from ternmq_model.errors import StoreError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_store.config import FlushMode
from ternmq_store.retention.retention import DiskLevel
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.replicas import log_of
from tests.support.stores import SMALL, open_store
from tests.support.toy_master import (
    CLUSTER,
    NAME,
    ToyMaster,
    ToySlave,
    epochs_of,
    toy_master,
    toy_slave,
)

Scenario = Callable[[MemoryNetwork], Awaitable[None]]


def run(scenario: Scenario) -> None:
    async def main() -> None:
        async with MemoryNetwork(Random(1)) as network:
            await scenario(network)

    run_in_virtual_time(main())


def has_all(slave: ToySlave, master: ToyMaster) -> bool:
    """Tell whether the slave has the master's log, safe, and the master knows."""
    end = master.store.max_physical
    return slave.store.safe_offset == end and master.acks[-1].safe_offset == end


async def caught_up(slave: ToySlave, master: ToyMaster) -> None:
    await until(lambda: bool(master.acks) and has_all(slave, master))
    assert log_of(slave.files, slave.store.max_physical) == log_of(
        master.files, master.store.max_physical
    )


def test_slave_follows_from_an_empty_log_as_it_grows() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_slave(network) as slave, toy_master(network) as master:
            master.write(200)
            await caught_up(slave, master)
            (hello,) = master.hellos
            assert (hello.cluster, hello.broker_name, hello.broker_id) == (CLUSTER, NAME, 1)
            assert (hello.store_id, list(hello.epochs), hello.log_end) == ("", [], 0)
            assert (hello.log_file_bytes, hello.flush_mode) == (0, "sync")
            for _ in range(50):
                master.write()
                await asyncio.sleep(0.003)
            await caught_up(slave, master)
            assert len(master.hellos) == 1
            assert slave.state.store_id == "store"
            assert slave.state.epochs == master.epochs
            assert slave.state.record.master_role == "sync_master"
            status = slave.follower.status()
            assert (status.is_connected, status.master, status.epoch) == (True, "m:10911", 1)
            assert (status.lag_bytes, status.lag_ms, status.problem) == (0, 0, "")

    run(scenario)


def test_slave_resumes_where_its_own_log_ends() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        files = MemoryFileSystem()
        async with toy_master(network) as master:
            async with toy_slave(network, files) as slave:
                master.write(30)
                await caught_up(slave, master)
                end = slave.store.max_physical
            master.write(30)
            master.acks.clear()
            async with toy_slave(network, files) as slave:
                await caught_up(slave, master)
                hello = master.hellos[-1]
                assert (hello.store_id, hello.log_end, hello.log_file_bytes) == (
                    *("store", end),
                    SMALL.commit_log_file_bytes,
                )
                assert [(each.number, each.start) for each in hello.epochs] == [(1, 0)]
                network.cut("m")
                master.write(10)
                await caught_up(slave, master)
                assert len(master.hellos) == 3

    run(scenario)


def test_slave_acknowledges_only_what_its_own_flush_made_safe() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_slave(network, sync_s=0.5) as slave, toy_master(network) as master:
            await until(lambda: bool(master.acks))
            master.write(5)
            end = master.store.max_physical
            await until(lambda: slave.store.max_physical == end)
            assert slave.store.safe_offset == 0
            assert {ack.safe_offset for ack in master.acks} == {0}
            await caught_up(slave, master)
            acks = [(ack.safe_offset, ack.appended_offset) for ack in master.acks]
            assert acks == sorted(acks)
            assert all(safe <= appended for safe, appended in acks)

    run(scenario)


def test_slave_far_behind_acknowledges_larger_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(network: MemoryNetwork) -> None:
        counts: list[int] = []
        for near in (1, 40_000):
            monkeypatch.setattr("ternmq_broker.replication.slave.follower.FAR_BYTES", 1)
            monkeypatch.setattr("ternmq_broker.replication.slave.follower.NEAR_BYTES", near)
            async with (
                toy_slave(network, flush_mode=FlushMode.ASYNC) as slave,
                toy_master(network) as master,
            ):
                master.write(400)
                await caught_up(slave, master)
                counts.append(len(master.acks))
        assert counts[1] <= counts[0] / 2, counts

    run(scenario)


def test_asynchronous_slave_acknowledges_appended_bytes() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with (
            toy_slave(network, sync_s=3.0, flush_mode=FlushMode.ASYNC) as slave,
            toy_master(network) as master,
        ):
            await until(lambda: bool(master.acks))
            master.write(5)
            await until(lambda: has_all(slave, master), within_s=0.1)
            assert slave.store.flushed_offset == 0

    run(scenario)


def test_slave_acknowledges_nothing_once_its_disk_has_failed() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        files = MemoryFileSystem()
        async with (
            toy_slave(network, files, flush_mode=FlushMode.ASYNC) as slave,
            toy_master(network) as master,
        ):
            master.write(5)
            await until(lambda: has_all(slave, master))
            files.sync_error = OSError("broken disk")
            master.write(1)
            await until(lambda: slave.store.failure is not None, within_s=1)
            await asyncio.sleep(0.1)  # what was under way
            count = len(master.acks)
            await asyncio.sleep(10)  # no heartbeat either
            assert len(master.acks) == count
            master.write(5)
            await asyncio.sleep(10)
            assert len(master.acks) == count
            files.sync_error = None

    run(scenario)


def test_acknowledged_bytes_survive_power_loss_of_slave() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        for seed in range(8):
            files = PowerLossFileSystem()
            random = Random(seed)
            async with toy_master(network) as master:
                async with toy_slave(network, files, sync_s=0.004) as slave:
                    for _ in range(random.randrange(5, 60)):
                        master.write(random.randrange(1, 4))
                        await asyncio.sleep(random.random() * 0.01)
                    acked = max([0, *(ack.safe_offset for ack in master.acks)])
                    after = files.lose_power(random)
                    assert slave.store.max_physical > 0
                again = open_store(after)
                assert again.max_physical >= acked
                assert log_of(after, acked) == log_of(master.files, acked)
                again.close()
                master.acks.clear()
                async with toy_slave(network, after) as slave:
                    await caught_up(slave, master)

    run(scenario)


def test_unconfirmed_bytes_are_not_served_and_limit_is_kept() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        files = MemoryFileSystem()
        async with toy_master(network) as master:
            async with toy_slave(network, files) as slave:
                master.write(3)
                third = master.store.max_physical
                await caught_up(slave, master)
                master.confirmed = third
                master.write(3)
                await caught_up(slave, master)
                await asyncio.sleep(3)
                assert slave.store.confirm_offset == slave.store.dispatched_offset == third
                assert slave.state.record.confirmed == third
            async with toy_slave(network, files) as slave:
                assert slave.store.confirm_offset == slave.store.dispatched_offset == third
                master.confirmed = None
                await until(lambda: slave.store.dispatched_offset == master.store.max_physical)

    run(scenario)


def test_refused_slave_logs_it_once_and_retries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_slave(network) as slave, toy_master(network) as master:
            code = int(ResponseCode.NO_PERMISSION)
            status = common.Status(code=code, remark="another store: empty the slave")
            master.says = replication.FollowAccepted(status=status)
            await until(lambda: len(master.hellos) == 5)
            assert "another store: empty the slave" in slave.follower.status().problem
            assert not slave.follower.status().is_connected
            master.says = None
            master.write()
            await caught_up(slave, master)
            assert slave.follower.status().problem == ""

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert [record.message for record in caplog.records if "another store" in record.message] == [
        "master not followed broker=a broker_id=1 master=m:10911 reason=m:10911: another store:"
        " empty the slave [NO_PERMISSION 16]"
    ]


def test_slave_that_must_cut_reports_it_and_stops_following() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_slave(network) as slave, toy_master(network) as master:
            master.write(10)
            await caught_up(slave, master)
            end = slave.store.max_physical
            master.says = replication.FollowAccepted(
                store_id="store",
                epochs=epochs_to_pb(epochs_of((1, 0), (7, 50))),
                log_file_bytes=SMALL.commit_log_file_bytes,
                cut=replication.FollowCut(keep_to=200),
            )
            network.cut("m")
            await until(lambda: bool(slave.cuts))
            await asyncio.sleep(5)
            file_bytes = SMALL.commit_log_file_bytes
            assert slave.cuts == [(LogCut(200, False, file_bytes), 7)]
            assert slave.store.max_physical == end
            assert len(master.hellos) == 2

    run(scenario)


def test_empty_log_adopts_the_length_of_the_masters_files() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        other = replace(SMALL, commit_log_file_bytes=4096)
        async with toy_slave(network, config=other) as slave, toy_master(network) as master:
            master.write()
            await until(lambda: bool(slave.cuts))
            assert slave.cuts == [(LogCut(0, True, SMALL.commit_log_file_bytes), 1)]
            assert slave.store.max_physical == 0

    run(scenario)


def test_probes_are_answered_with_checksums_of_the_slaves_bytes() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_slave(network) as slave, toy_master(network) as master:
            master.write(20)
            await caught_up(slave, master)
            end = slave.store.max_physical
            master.probes = [(end - 1000, end), (0, 500)]
            network.cut("m")
            await until(lambda: len(master.probed) == 2)
            whole = log_of(slave.files, end)
            assert [(probed.end, probed.crc) for probed in master.probed] == [
                (end, zlib.crc32(whole[end - 1000 :])),
                (500, zlib.crc32(whole[:500])),
            ]
            master.write()
            await caught_up(slave, master)
            master.probes = [(end - 1000, end + 5000)]
            network.cut("m")
            await until(lambda: "which this log lacks" in slave.follower.status().problem)

    run(scenario)


def test_slave_stores_no_byte_before_its_epoch_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_slave(network) as slave, toy_master(network) as master:

            async def refuse(**_told: object) -> None:
                raise StoreError("the disk refused")

            with monkeypatch.context() as patch:
                patch.setattr(slave.state, "adopt", refuse)
                master.write(10)
                await until(lambda: len(master.hellos) == 3)
                assert slave.store.max_physical == 0
                assert slave.follower.status().problem == "the disk refused"
            await caught_up(slave, master)

    run(scenario)


def test_master_of_a_lower_epoch_than_heard_of_is_not_followed() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_slave(network) as slave, toy_master(network) as master:
            master.write()
            await caught_up(slave, master)
            slave.state.note_epoch(5)
            await until(lambda: not slave.follower.status().is_connected, within_s=2)
            master.write(5)
            await asyncio.sleep(5)
            assert slave.store.max_physical < master.store.max_physical
            assert len(master.hellos) == 1
        async with toy_slave(network, slave.files) as slave:
            newer = replace(master, epochs=epochs_of((1, 0), (6, slave.store.max_physical)))
            async with toy_master(network, newer):
                await caught_up(slave, newer)
                assert slave.state.epochs == newer.epochs

    run(scenario)


@pytest.mark.parametrize(
    ("piece", "why"),
    [
        (replication.LogPiece(epoch=2), "of epoch 2"),
        (replication.LogPiece(epoch=1, start=4096, data=b"x" * 200), "bytes of 4096 came"),
        (replication.LogPiece(epoch=1, start=0, data=b"x" * 200), ""),
        (replication.LogPiece(epoch=1, start=0, data=b"\0" * 10_000), ""),
    ],
)
def test_wild_pieces_change_nothing(piece: replication.LogPiece, why: str) -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_slave(network) as slave, toy_master(network) as master:
            master.wild = [piece]
            await until(lambda: len(master.hellos) == 3)
            assert why in slave.follower.status().problem
            assert slave.follower.status().problem
            assert slave.store.max_physical == 0
            master.wild = []
            master.write(10)
            await caught_up(slave, master)

    run(scenario)


def test_forged_confirm_offset_serves_no_unsafe_bytes() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_slave(network, sync_s=1.0) as slave, toy_master(network) as master:
            master.confirmed = 1 << 60
            await until(lambda: bool(master.acks))
            master.write(5)
            await until(lambda: slave.store.max_physical > 0)
            assert slave.store.confirm_offset == 0
            await caught_up(slave, master)
            assert slave.store.confirm_offset == slave.store.max_physical

    run(scenario)


def test_confirmation_of_former_master_does_not_cover_new_bytes() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with (
            toy_slave(network, flush_mode=FlushMode.ASYNC) as slave,
            toy_master(network) as master,
        ):
            master.confirmed = PhysicalOffset(1 << 40)
            await until(lambda: slave.store.confirm_limit == 1 << 40)
            master.confirmed = PhysicalOffset(0)
            master.write(5)
            await until(lambda: slave.store.max_physical == master.store.max_physical)
            assert slave.store.confirm_offset == 0

    run(scenario)


def test_silent_master_is_dropped_after_fifteen_seconds() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_slave(network) as slave, toy_master(network) as master:
            master.is_mute = True
            await until(lambda: slave.follower.status().is_connected)
            await asyncio.sleep(14)
            assert len(master.acks) >= 14, "a slave says every second that it lives"
            assert len(master.hellos) == 1
            await until(lambda: len(master.hellos) == 2, within_s=4)

    run(scenario)


def test_full_disk_is_waited_for() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_slave(network) as slave, toy_master(network) as master:
            slave.store.cleaner.level = DiskLevel.FULL
            master.write(5)
            await asyncio.sleep(40)
            assert slave.store.max_physical == 0
            assert slave.follower.status().is_connected
            assert slave.follower.status().problem
            assert slave.follower.status().lag_ms > 30_000
            slave.store.cleaner.level = DiskLevel.NORMAL
            await caught_up(slave, master)
            assert len(master.hellos) == 1
            assert slave.follower.status().problem == ""

    run(scenario)


def test_slave_closes_at_once_even_while_its_master_is_silent() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_master(network) as master:
            loop = asyncio.get_running_loop()
            async with toy_slave(network):
                await until(lambda: bool(master.acks))
                before = loop.time()
            assert loop.time() - before < 0.1
            network.partition("s", "m")
            async with toy_slave(network):
                await asyncio.sleep(0.2)
                before = loop.time()
            assert loop.time() - before < 0.1
            network.heal()

    run(scenario)


def test_messages_the_master_still_keeps_are_kept_here() -> None:
    async def scenario(network: MemoryNetwork) -> None:
        async with toy_slave(network) as slave, toy_master(network) as master:
            assert [held() for held in slave.store.cleaner.holders] == [None]
            master.write(5)
            await caught_up(slave, master)
            assert [held() for held in slave.store.cleaner.holders] == [0]

    run(scenario)
