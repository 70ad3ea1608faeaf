import asyncio
from itertools import pairwise

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_model.errors import RefusedError, TernError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.followed import EPOCHS, Master, Slave, ended, probed, reigning, soon
from tests.support.replicas import log_of


def test_bytes_go_to_slaves_before_the_masters_disk_has_them() -> None:
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


def test_confirmation_is_sent_at_once_on_an_idle_stream() -> None:
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


def test_idle_stream_has_a_heartbeat_each_second() -> None:
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
def test_forged_or_wild_slave_offset_changes_nothing_at_the_master(
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
            assert not master.ends
            await slave.leave()

    run_in_virtual_time(main())


def test_slave_violating_the_protocol_is_cut_off() -> None:
    async def main() -> None:
        async with reigning() as master:
            slave = await master.slave()
            await slave.accepted()
            await slave.stream.write(replication.FollowRequest(hello=replication.FollowHello()))
            with pytest.raises(RefusedError, match="acknowledgements only"):
                await ended(slave)
            assert not master.replicas.in_sync.followers
            await slave.leave()

    run_in_virtual_time(main())


def test_hanging_slave_is_waited_for_three_seconds_and_kept_fifteen() -> None:
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


def test_returning_slave_is_waited_for_again() -> None:
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


def test_new_stream_of_the_same_process_replaces_the_old() -> None:
    async def main() -> None:
        async with reigning() as master:
            first = await master.slave()
            await first.accepted()
            second = await master.slave()
            assert (await second.accepted()).status.code == Code.SUCCESS
            await soon(ended(first))
            (follower,) = master.replicas.senders()
            await second.acknowledge(0)
            await soon(until(lambda: master.replicas.in_sync.is_enough))
            await first.leave()
            await asyncio.sleep(1)
            assert master.replicas.senders() == [follower]
            await second.leave()

    run_in_virtual_time(main())


def test_another_process_of_the_same_id_waits_until_the_first_is_silent() -> None:
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


def test_several_slaves_follow_concurrently_and_slow_ones_delay_none() -> None:
    async def main() -> None:
        async with reigning() as master:
            slaves = [await master.slave(broker_id) for broker_id in (1, 2, 3)]
            for slave in slaves:
                await slave.accepted()
            for number in range(100):
                master.append(bytes(100 * (number % 7 + 1)))
            end = master.store.max_physical
            quick = slaves[:2]
            await asyncio.gather(*(soon(slave.take(end)) for slave in quick))
            assert all(slave.log == log_of(master.files, end) for slave in quick)
            await slaves[0].acknowledge(end)
            await soon(until(lambda: master.replicas.in_sync.replicated_to == end))
            assert await master.confirmations.wait(end) is None
            for slave in slaves:
                await slave.leave()

    run_in_virtual_time(main())


def test_unacknowledged_log_is_limited_to_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ternmq_broker.replication.master.replicas.WINDOW_BYTES", 4096)
    monkeypatch.setattr("ternmq_broker.replication.master.replicas.PIECE_BYTES_MAX", 1024)

    async def main() -> None:
        async with reigning() as master:
            for _ in range(100):
                master.append(bytes(500))
            end = master.store.max_physical
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


def test_log_files_a_slave_still_needs_are_held() -> None:
    async def main() -> None:
        async with reigning() as master:
            slave = await master.slave()
            await slave.accepted()
            (held,) = master.store.cleaner.holders
            assert held() == 0
            end = master.append(bytes(500))
            await slave.take(end)
            await slave.acknowledge(end)
            await soon(until(lambda: held() == end))
            await slave.leave()
            await soon(until(lambda: held() is None))

    run_in_virtual_time(main())


def test_status_shows_who_follows_and_how_far_behind() -> None:
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


def test_async_master_waits_for_no_slave_and_reports_confirmations() -> None:
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


def test_synchronized_slaves_get_everything_before_their_master_leaves() -> None:
    async def main() -> None:
        async with reigning() as master:
            slave, end = await waited_for(master)
            lazy = await master.slave(2)
            await lazy.accepted()
            began_s = asyncio.get_running_loop().time()
            settling = asyncio.ensure_future(master.replicas.settle(2.0))
            await asyncio.sleep(0.5)
            assert not settling.done()
            await slave.acknowledge(end)
            while slave.confirmed < end:
                await slave.piece()
            await slave.acknowledge(end)
            await soon(settling)  # who does not count is not waited for
            assert asyncio.get_running_loop().time() - began_s < 1
            master.append(bytes(10))
            await master.replicas.settle(2.0)  # it says nothing more
            assert 2.4 < asyncio.get_running_loop().time() - began_s < 3
            await slave.leave()
            await lazy.leave()

    run_in_virtual_time(main())
