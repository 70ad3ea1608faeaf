import asyncio
import zlib
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_broker.replication.epochs import Epoch
from ternmq_model.errors import RefusedError, TernError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_store.config import FlushMode
from tests.support.followed import EPOCHS, OWN_ID, Master, Slave, reigning
from tests.support.replicas import log_of
from tests.support.stores import SMALL
from tests.support.virtual_time import run_in_virtual_time


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what comes without being told."""
    while not condition():  # noqa: ASYNC110 -- the master tells nobody
        await asyncio.sleep(0.001)


async def ended(slave: Slave) -> None:
    """Read whatever comes until the stream is over."""
    while await slave.stream.read() is not None:
        pass


async def soon(awaited: Awaitable[Any]) -> Any:
    """Return what comes without a second's wait."""
    return await asyncio.wait_for(awaited, 0.5)


def test_a_new_slave_gets_the_whole_log_byte_for_byte_and_then_what_is_appended() -> None:
    async def main() -> None:
        async with reigning() as master:
            for number in range(40):
                master.append(bytes(100 + 60 * number))
            slave = await master.slave()
            accepted = await slave.accepted()
            assert accepted.status.code == Code.SUCCESS
            assert accepted.store_id == "store"
            assert [(each.number, each.start) for each in accepted.epochs] == list(EPOCHS)
            assert accepted.start == 0
            assert not accepted.HasField("cut")
            assert accepted.log_file_bytes == SMALL.commit_log_file_bytes
            assert accepted.master_role == "sync_master"
            assert accepted.in_sync_replicas == 2
            assert master.followed == 1
            end = master.store.max_physical
            assert end > 5 * SMALL.commit_log_file_bytes
            await slave.take(end)
            assert slave.log == log_of(master.files, end)
            end = master.append(b"more")
            piece = await soon(slave.piece())
            assert slave.log == log_of(master.files, end)
            assert piece.log_end == end
            assert piece.stored_at_ms == master.store.last_stored_at_ms
            await slave.leave()

    run_in_virtual_time(main())


def test_bytes_go_to_slaves_before_the_masters_own_disk_has_them() -> None:
    async def main() -> None:
        async with reigning() as master:
            slave = await master.slave()
            await slave.accepted()
            master.sync_s = 5.0
            end = master.append(b"one")
            await soon(slave.take(end))
            assert master.store.flushed_offset == 0
            await slave.acknowledge(end)
            await asyncio.sleep(1)
            assert master.store.confirm_offset == 0
            master.sync_s = 0.0
            await slave.leave()

    run_in_virtual_time(main())


def test_a_confirmation_is_told_at_once_when_nothing_else_is_to_be_said() -> None:
    async def main() -> None:
        async with reigning() as master:
            slave = await master.slave()
            await slave.accepted()
            await slave.acknowledge(0)
            await soon(until(lambda: master.replicas.in_sync.is_enough))
            end = master.append(b"one")
            await soon(slave.take(end))
            await asyncio.sleep(0.1)
            assert master.store.confirm_offset == 0
            await slave.acknowledge(end)
            await soon(until(lambda: master.store.confirm_offset == end))
            while slave.confirmed < end:
                piece = await soon(slave.piece())
                assert not piece.data
            await slave.leave()

    run_in_virtual_time(main())


def test_a_stream_with_nothing_to_say_has_a_heartbeat_each_second() -> None:
    async def main() -> None:
        async with reigning() as master:
            slave = await master.slave()
            await slave.accepted()
            times: list[float] = []
            for _ in range(4):
                assert not (await slave.piece()).data
                await slave.acknowledge(0)
                times.append(asyncio.get_running_loop().time())
            assert all(1 <= later - earlier < 1.3 for earlier, later in pairwise(times[1:]))
            await slave.leave()

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"cluster": "Other"}, "cluster DefaultCluster"),
        ({"broker_name": "b"}, "this is broker a"),
        ({"broker_id": 0}, "above 0"),
        ({"broker_id": OWN_ID}, "the master's own"),
        ({"log_file_bytes": 4096}, "commit_log_file_bytes"),
        ({"store_id": "foreign", "log_end": 100, "epochs": EPOCHS}, "of store foreign"),
        ({"store_id": "", "log_end": 100}, "of store unknown"),
        ({"epochs": (Epoch(2, PhysicalOffset(0)), Epoch(1, PhysicalOffset(5)))}, "cannot be"),
        ({"epochs": (Epoch(1, PhysicalOffset(5)), Epoch(2, PhysicalOffset(0)))}, "cannot be"),
        ({"log_start": 5, "log_end": 4, "store_id": "store"}, "cannot be"),
        ({"store_id": "foreign", "log_end": 100, "highest_epoch": 99}, "of store foreign"),
    ],
)
def test_who_does_not_belong_here_is_refused(fields: dict[str, Any], why: str) -> None:
    async def main() -> None:
        async with reigning() as master:
            master.append(bytes(200))
            slave = await master.slave(**fields)
            accepted = await slave.accepted()
            assert accepted.status.code != Code.SUCCESS
            assert why in accepted.status.remark
            assert await slave.stream.read() is None
            assert not master.replicas.in_sync.followers
            assert not master.deposed
            assert not master.followed
            await slave.leave()

    run_in_virtual_time(main())


async def probed(slave: Slave, log: bytes) -> replication.FollowAccepted:
    """Answer probes as one with that log, until the master has decided."""
    while True:
        reply = await slave.stream.read()
        assert reply is not None
        if reply.WhichOneof("reply") == "accepted":
            return reply.accepted
        probe = reply.probe
        crc = zlib.crc32(log[probe.start : probe.end])
        answer = replication.FollowProbed(end=probe.end, crc=crc)
        await slave.stream.write(replication.FollowRequest(probed=answer))


def test_a_slave_goes_on_where_its_log_ends() -> None:
    async def main() -> None:
        async with reigning() as master:
            half = master.append(bytes(200), bytes(300))
            end = master.append(bytes(400))
            log = log_of(master.files, half)
            slave = await master.slave(log_end=half, epochs=EPOCHS)
            accepted = await probed(slave, log)
            assert accepted.status.code == Code.SUCCESS
            assert accepted.start == half
            assert not accepted.HasField("cut")
            slave.log += log
            await slave.take(end)
            assert slave.log == log_of(master.files, end)
            await slave.leave()

    run_in_virtual_time(main())


def test_a_slave_whose_log_parted_is_told_where_to_cut_it() -> None:
    async def main() -> None:
        async with reigning(epochs=(Epoch(1, PhysicalOffset(0)),)) as master:
            common = master.append(bytes(200))
            master.append(bytes(300))
        files = master.files
        epochs = (Epoch(1, PhysicalOffset(0)), Epoch(3, common))
        async with reigning(files=files, epochs=epochs) as master:
            log = log_of(files, common) + bytes(500)
            theirs = (Epoch(1, PhysicalOffset(0)), Epoch(2, common))
            slave = await master.slave(log_end=common + 500, epochs=theirs, highest_epoch=2)
            accepted = await probed(slave, log)
            assert accepted.status.code == Code.SUCCESS
            assert accepted.cut.keep_to == common
            assert not accepted.cut.starts_over
            assert await slave.stream.read() is None
            assert not master.replicas.in_sync.followers
            await slave.leave()

    run_in_virtual_time(main())


def test_a_slave_with_other_bytes_starts_over() -> None:
    async def main() -> None:
        async with reigning() as master:
            end = master.append(bytes(200))
            slave = await master.slave(log_end=end, epochs=EPOCHS)
            accepted = await probed(slave, b"x" * end)
            assert accepted.cut.starts_over
            assert accepted.cut.keep_to == 0
            await slave.leave()

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    "fields",
    [{"highest_epoch": 3}, {"log_end": 100, "epochs": (*EPOCHS, Epoch(1000, PhysicalOffset(50)))}],
)
def test_a_slave_that_knows_a_higher_epoch_deposes_the_master(fields: dict[str, Any]) -> None:
    async def main() -> None:
        async with reigning() as master:
            slave = await master.slave(store_id="store", **fields)
            other = await master.slave(2)
            await other.accepted()
            waiting = master.confirmations.wait(PhysicalOffset(1 << 40))
            accepted = await slave.accepted()
            assert accepted.status.code == Code.SERVICE_NOT_AVAILABLE
            highest = fields.get("highest_epoch", 1000)
            assert f"epoch {highest}" in accepted.status.remark
            (deposed,) = master.deposed
            assert deposed[0] == highest
            assert "slave 1" in deposed[1]
            with pytest.raises(RefusedError, match="there is another one"):
                await waiting
            before = master.store.confirm_offset
            master.append(bytes(100))
            await asyncio.sleep(1)
            assert master.store.confirm_offset == before
            master.replicas.fence(highest, "again")
            assert len(master.deposed) == 1
            assert (await master.status()).is_fenced
            again = await master.slave(3)
            assert "no master any more" in (await again.accepted()).status.remark
            for each in (slave, other, again):
                await each.leave()

    run_in_virtual_time(main())


async def waited_for(master: Master) -> tuple[Slave, int]:
    """Return a slave that counts and lacks a message which the master waits with."""
    slave = await master.slave()
    await slave.accepted()
    await slave.acknowledge(0)
    await soon(until(lambda: master.replicas.in_sync.is_enough))
    first = master.append(bytes(100))
    await slave.take(first)
    await slave.acknowledge(first)
    await soon(until(lambda: master.store.confirm_offset == first))
    end = master.append(bytes(100))
    await slave.take(end)
    return slave, end


@pytest.mark.parametrize(
    "forged",
    [
        {"safe_offset": 1 << 62, "appended_offset": 1 << 62},
        {"safe_offset": 10_000, "appended_offset": 10_000},
        {"safe_offset": 0, "appended_offset": 100},
        {"safe_offset": -1, "appended_offset": 100},
        {"safe_offset": 300, "appended_offset": 299},
        {"safe_offset": 100, "appended_offset": 10_000},
        {"epoch": 1},
        {"epoch": 3},
        {"epoch": 0},
    ],
)
def test_a_forged_or_wild_slave_offset_changes_nothing_at_the_master(
    forged: dict[str, int],
) -> None:
    async def main() -> None:
        async with reigning() as master:
            slave, end = await waited_for(master)
            confirmed = master.store.confirm_offset
            replicated = master.replicas.in_sync.replicated_to
            waiting = master.confirmations.wait(PhysicalOffset(end))
            fields = {"epoch": 2, "safe_offset": end, "appended_offset": end} | forged
            ack = replication.FollowAck(**fields)
            await slave.stream.write(replication.FollowRequest(ack=ack))
            with pytest.raises(TernError):
                await ended(slave)
            # The stream is over, so the slave does not count any more, and the disk decides alone.
            assert replicated == confirmed < end
            assert master.replicas.in_sync.replicated_to == 0
            assert not master.replicas.in_sync.followers
            assert await waiting is Code.SLAVE_NOT_AVAILABLE
            assert not master.deposed
            await slave.leave()

    run_in_virtual_time(main())


def test_a_slave_that_speaks_out_of_turn_is_cut_off() -> None:
    async def main() -> None:
        async with reigning() as master:
            slave = await master.slave()
            await slave.accepted()
            await slave.stream.write(replication.FollowRequest(hello=replication.FollowHello()))
            with pytest.raises(RefusedError, match="nothing else"):
                await ended(slave)
            assert not master.replicas.in_sync.followers
            await slave.leave()

    run_in_virtual_time(main())


def test_a_slave_that_hangs_is_waited_for_three_seconds_and_kept_fifteen() -> None:
    async def main() -> None:
        async with reigning() as master:
            slave, end = await waited_for(master)
            began_s = asyncio.get_running_loop().time()
            code = await master.confirmations.wait(PhysicalOffset(end))
            took_s = asyncio.get_running_loop().time() - began_s
            assert code is Code.SLAVE_NOT_AVAILABLE
            assert 2.9 < took_s < 3.3
            assert master.store.confirm_offset == end
            assert not master.replicas.in_sync.is_enough
            assert len(master.replicas.in_sync.followers) == 1
            end = master.append(bytes(100))
            assert await master.confirmations.wait(end) is Code.SLAVE_NOT_AVAILABLE
            await until(lambda: not master.replicas.in_sync.followers)
            assert 14.9 < asyncio.get_running_loop().time() - began_s < 15.5
            await slave.leave()

    run_in_virtual_time(main())


def test_a_slave_that_comes_back_is_waited_for_again() -> None:
    async def main() -> None:
        async with reigning() as master:
            slave, end = await waited_for(master)
            await slave.leave()
            assert await master.confirmations.wait(PhysicalOffset(end)) is Code.SLAVE_NOT_AVAILABLE
            again = await master.slave(log_end=len(slave.log), epochs=EPOCHS)
            accepted = await probed(again, bytes(slave.log))
            again.log += slave.log
            assert accepted.start == end
            await again.acknowledge(end)
            await soon(until(lambda: master.replicas.in_sync.is_enough))
            later = master.append(bytes(100))
            waiting = master.confirmations.wait(later)
            await again.take(later)
            assert not waiting.done()
            await again.acknowledge(later)
            assert await soon(waiting) is None
            await again.leave()

    run_in_virtual_time(main())


def test_a_new_stream_of_the_same_process_takes_the_place_of_the_old_one() -> None:
    async def main() -> None:
        async with reigning() as master:
            first = await master.slave()
            await first.accepted()
            second = await master.slave()
            assert (await second.accepted()).status.code == Code.SUCCESS
            await soon(ended(first))
            (follower,) = master.replicas.streams()
            await second.acknowledge(0)
            await soon(until(lambda: master.replicas.in_sync.is_enough))
            await first.leave()
            await asyncio.sleep(1)
            assert master.replicas.streams() == [follower]
            await second.leave()

    run_in_virtual_time(main())


def test_another_process_of_the_same_id_has_to_wait_until_the_first_is_silent() -> None:
    async def main() -> None:
        async with reigning() as master:
            first = await master.slave()
            await first.accepted()
            await asyncio.sleep(2)
            await first.acknowledge(0)
            await asyncio.sleep(2)
            twin = await master.slave(incarnation="twin")
            refused = (await twin.accepted()).status
            assert refused.code == Code.SERVICE_NOT_AVAILABLE
            assert "another slave with id 1" in refused.remark
            await asyncio.sleep(1)
            late = await master.slave(incarnation="twin")
            assert (await late.accepted()).status.code == Code.SUCCESS
            for each in (first, twin, late):
                await each.leave()

    run_in_virtual_time(main())


def test_several_slaves_follow_side_by_side_and_a_slow_one_holds_up_nobody() -> None:
    async def main() -> None:
        async with reigning() as master:
            slaves = [await master.slave(broker_id) for broker_id in (1, 2, 3)]
            for slave in slaves:
                await slave.accepted()
            for number in range(100):
                end = master.append(bytes(100 * (number % 7 + 1)))
            quick = slaves[:2]
            await asyncio.gather(*(soon(slave.take(end)) for slave in quick))
            assert all(slave.log == log_of(master.files, end) for slave in quick)
            await slaves[0].acknowledge(end)
            await soon(until(lambda: master.replicas.in_sync.replicated_to == end))
            assert await master.confirmations.wait(end) is None
            for slave in slaves:
                await slave.leave()

    run_in_virtual_time(main())


def test_without_acknowledgements_only_a_window_of_the_log_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ternmq_broker.replication.feeding.WINDOW_BYTES", 4096)
    monkeypatch.setattr("ternmq_broker.replication.feeding.PIECE_BYTES_MAX", 1024)

    async def main() -> None:
        async with reigning() as master:
            for _ in range(100):
                end = master.append(bytes(500))
            slave = await master.slave()
            await slave.accepted()
            for _ in range(8):
                await slave.piece()
            assert 4096 <= len(slave.log) < 4096 + 1024
            while len(slave.log) < end:
                await slave.acknowledge(len(slave.log))
                await soon(slave.piece())
            await slave.leave()

    run_in_virtual_time(main())


def test_what_a_slave_lacks_is_not_deleted_under_it() -> None:
    async def main() -> None:
        async with reigning() as master:
            slave = await master.slave()
            await slave.accepted()
            (held,) = master.store.cleaner.holders
            assert held() is None
            end = master.append(bytes(500))
            await slave.take(end)
            await slave.acknowledge(end)
            await soon(until(lambda: held() == end))
            await slave.leave()
            await soon(until(lambda: held() is None))

    run_in_virtual_time(main())


def test_the_status_tells_who_follows_and_how_far_behind() -> None:
    async def main() -> None:
        async with reigning() as master:
            reply = await master.status()
            assert (reply.role, reply.in_sync_replicas, reply.in_sync_now) == ("sync_master", 2, 1)
            assert [(each.number, each.start) for each in reply.epochs] == list(EPOCHS)
            slave, end = await waited_for(master)
            first = master.store.confirm_offset
            await asyncio.sleep(2)
            reply = await master.status()
            (follower,) = reply.followers
            assert follower.broker_id == 1
            assert follower.is_in_sync
            assert follower.sent_offset == end
            assert follower.safe_offset == follower.appended_offset == first
            assert follower.lag_bytes == end - first
            assert 2000 <= follower.lag_ms < 2300
            assert reply.confirm_offset == first
            assert reply.log_end == reply.safe_offset == end
            assert reply.in_sync_now == 2
            await slave.acknowledge(end, dispatched_offset=first)
            await soon(until(lambda: master.store.confirm_offset == end))
            (follower,) = (await master.status()).followers
            assert (follower.lag_bytes, follower.lag_ms) == (0, 0)
            assert follower.dispatched_offset == first
            await slave.leave()

    run_in_virtual_time(main())


def test_an_asynchronous_master_waits_for_nobody_and_tells_what_is_confirmed() -> None:
    async def main() -> None:
        async with reigning(
            role=BrokerRole.ASYNC_MASTER, in_sync_replicas=1, flush_mode=FlushMode.ASYNC
        ) as master:
            slave = await master.slave()
            await slave.accepted()
            end = master.append(bytes(100))
            assert await soon(master.confirmations.wait(end)) is None
            await soon(slave.take(end))
            assert slave.confirmed == end
            await slave.leave()

    run_in_virtual_time(main())


def test_a_broker_that_closes_takes_no_slave() -> None:
    async def main() -> None:
        async with reigning() as master:
            master.is_closing = True
            slave = await master.slave()
            assert "closing" in (await slave.accepted()).status.remark
            await slave.leave()

    run_in_virtual_time(main())
