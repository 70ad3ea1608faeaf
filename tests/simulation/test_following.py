import asyncio

from ternmq_broker.state.replication_record import LogCut
from ternmq_model.offsets import PhysicalOffset
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.followed import Master, reigning
from tests.support.replicas import log_of, next_slice, take
from tests.support.stores import SMALL, open_store
from tests.support.toy_master import ToySlave, epochs_of, toy_slave


async def caught_up(slave: ToySlave, master: Master) -> None:
    end = master.store.max_physical
    await until(lambda: slave.store.safe_offset == end == master.store.confirm_offset)
    await until(lambda: slave.store.dispatched_offset == end, within_s=2)
    assert log_of(slave.files, end) == log_of(master.files, end)


def test_slave_has_everything_its_master_confirms() -> None:
    async def main() -> None:
        async with reigning() as master:
            async with toy_slave(master.network) as slave:
                for number in range(60):
                    master.append(bytes(50 + 40 * number))
                await caught_up(slave, master)
                for _ in range(200):
                    end = master.append(b"more")
                    await asyncio.wait_for(master.confirmations.wait(end), 1)
                    assert slave.store.safe_offset >= end
                files, end = slave.files, slave.store.max_physical
                reply = await master.status()
                (followed,) = reply.followers
                assert (followed.broker_id, followed.is_in_sync, followed.lag_bytes) == (1, True, 0)
            master.append(b"alone")
            async with toy_slave(master.network, files) as slave:
                assert slave.store.max_physical == end
                await caught_up(slave, master)
                master.network.cut("m", "s")
                master.append(b"after the break")
                await caught_up(slave, master)

    run_in_virtual_time(main())


def test_slave_catches_up_while_its_master_goes_on() -> None:
    async def main() -> None:
        async with reigning() as master:
            for _ in range(300):
                master.append(bytes(900), bytes(300))
                await asyncio.sleep(0)
            async with toy_slave(master.network, sync_s=0.002) as slave:
                for _ in range(300):
                    master.append(bytes(200))
                    await asyncio.sleep(0.001)
                await caught_up(slave, master)

    run_in_virtual_time(main())


def test_diverged_log_is_cut_where_it_parted() -> None:
    async def main() -> None:
        slave_files, new_files = MemoryFileSystem(), MemoryFileSystem()
        async with (
            reigning(epochs=epochs_of((1, 0))) as old,
            toy_slave(old.network, slave_files) as slave,
        ):
            for number in range(30):
                old.append(bytes(40 * number))
            await caught_up(slave, old)
            new = open_store(new_files)
            while new.max_physical < 3 * SMALL.commit_log_file_bytes // 2:
                piece = next_slice(old.store, new.max_physical)
                assert piece is not None
                take(new, piece)
            parted = PhysicalOffset(new.max_physical)
            new.close()
        epochs = epochs_of((1, 0), (1_001_000, parted))
        async with reigning(epochs=epochs, files=new_files) as master:
            for number in range(40):
                master.append(b"new" * number)
            async with toy_slave(master.network, slave_files) as slave:
                await until(lambda: bool(slave.cuts))
                file_bytes = SMALL.commit_log_file_bytes
                assert slave.cuts == [(LogCut(parted, False, file_bytes), 1_001_000)]
                assert slave.store.max_physical > parted, "nothing is cut while it is open"

    run_in_virtual_time(main())


def test_slave_of_another_store_reports_it_and_keeps_its_log() -> None:
    async def main() -> None:
        files = MemoryFileSystem()
        async with reigning() as other, toy_slave(other.network, files) as slave:
            other.append(b"theirs")
            await caught_up(slave, other)
            await slave.state.adopt(
                store_id="foreign",
                epochs=slave.state.epochs,
                highest_epoch=2,
                master_role="async_master",
                in_sync_replicas=1,
            )
        async with reigning() as master:
            master.append(b"ours")
            before = log_of(files, 8192)
            async with toy_slave(master.network, files) as slave:
                await asyncio.sleep(5)
                assert "store foreign" in slave.follower.status().problem
                assert not slave.cuts
            assert log_of(files, 8192) == before
            assert not master.ends

    run_in_virtual_time(main())
