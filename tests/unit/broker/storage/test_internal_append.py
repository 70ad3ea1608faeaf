"""Storing on somebody's behalf."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from ternmq_broker.storage.ack_policy import AckPolicy
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_model.errors import BrokerBusy, RefusedError, StoreFailed
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import decode_record
from ternmq_model.response_code import ResponseCode
from ternmq_store.config import FlushMode
from ternmq_store.message_store import AppendResult
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.records import BORN_HOST, STORE_HOST
from tests.support.stores import open_store

V6_HOST = bytes(range(16)) + (1).to_bytes(4, "big")
PLAIN = InternalRecord(
    topic="flights",
    queue_id=0,
    body=b"body",
    properties={"TAGS": "late"},
    born_at_ms=1_700_000_000_000,
    born_host=BORN_HOST,
)


@dataclass
class Log:
    """A log that is busy as often as it is told."""

    busy: int = 0
    batches: list[RecordBatch] = field(default_factory=list[RecordBatch])

    def append(
        self, batch: RecordBatch, *, born_host: bytes | None, store_host: bytes
    ) -> AppendResult:
        assert born_host is None
        assert store_host == STORE_HOST
        if self.busy:
            self.busy -= 1
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, "no room yet")
        self.batches.append(batch)
        offsets = np.arange(len(batch), dtype=np.int64)
        return AppendResult(offsets, offsets, 7, PhysicalOffset(100 * len(self.batches)))


@dataclass
class World:
    """A writer and what it stands on."""

    log: Log = field(default_factory=Log)
    failure: OSError | None = None
    saved: asyncio.Future[None] | None = None
    waits: int = 0
    has_room_soon: bool = True

    def __post_init__(self) -> None:
        self.confirmations = Confirmations(lambda: self.failure)

    async def space_made(self) -> bool:
        self.waits += 1
        return self.has_room_soon

    def writer(self) -> InternalWriter:
        return InternalWriter(
            self.log,
            store_host=lambda: STORE_HOST,
            on_appended=lambda: None,
            space_made=self.space_made,
            ack_policy=AckPolicy(
                confirmations=self.confirmations,
                topics_saved=lambda: self.saved,
                sync_flush_timeout_ms=5000,
            ),
            is_checksummed=True,
        )


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def wrapped() -> None:
        await main()

    run_in_virtual_time(wrapped())


def test_append_keeps_born_time_and_host_of_each_record() -> None:
    store = open_store(MemoryFileSystem(), flush_mode=FlushMode.ASYNC)
    other = replace(PLAIN, born_host=b"\x7f\0\0\x09\0\0\0\1", born_at_ms=5, queue_id=1)
    writer = InternalWriter(
        store,
        store_host=lambda: STORE_HOST,
        on_appended=lambda: None,
        space_made=World().space_made,
        ack_policy=AckPolicy(
            confirmations=Confirmations(), topics_saved=lambda: None, sync_flush_timeout_ms=1
        ),
        is_checksummed=True,
    )
    appended = writer.append([PLAIN, other, replace(PLAIN, born_host=V6_HOST)])
    assert appended.queue_offsets.tolist() == [0, 0, 1]
    hosts: list[tuple[bytes, int]] = []
    for offset in appended.physical_offsets.tolist():
        data = store.record_at(PhysicalOffset(offset))
        assert data is not None
        record = decode_record(data)
        assert record is not None
        hosts.append((record.header.born_host, record.header.born_at_ms))
    assert hosts == [
        (PLAIN.born_host, PLAIN.born_at_ms),
        (other.born_host, 5),
        (V6_HOST, PLAIN.born_at_ms),
    ]
    store.close()


def test_put_waits_for_space_then_disk_and_topics() -> None:
    async def main() -> None:
        world = World(Log(busy=3), saved=asyncio.get_running_loop().create_future())
        writer = world.writer()
        task = asyncio.create_task(writer.put([PLAIN, PLAIN]))
        await asyncio.sleep(1)
        assert world.waits == 3
        assert not task.done()
        world.confirmations.advance(PhysicalOffset(100))
        await asyncio.sleep(1)
        assert not task.done()
        assert world.saved is not None
        world.saved.set_result(None)
        assert (await task).end == 100

    run(main)


def test_put_without_space_stores_nothing() -> None:
    async def main() -> None:
        world = World(Log(busy=9), has_room_soon=False)
        with pytest.raises(BrokerBusy) as caught:
            await world.writer().put([PLAIN])
        assert not caught.value.may_have_happened
        assert not world.log.batches

    run(main)


def test_put_unconfirmed_by_the_disk_in_time_may_have_happened() -> None:
    async def main() -> None:
        with pytest.raises(RefusedError) as caught:
            await World().writer().put([PLAIN], timeout_s=2)
        assert caught.value.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert caught.value.may_have_happened

    run(main)


def test_endless_put_waits_until_the_disk_fails() -> None:
    async def main() -> None:
        world = World()
        task = asyncio.create_task(world.writer().put([PLAIN], timeout_s=math.inf))
        await asyncio.sleep(3600)
        assert not task.done()
        world.failure = OSError("gone")
        world.confirmations.check_store()
        with pytest.raises(StoreFailed) as caught:
            await task
        assert caught.value.may_have_happened

    run(main)


def test_refusal_of_a_later_part_mentions_the_stored_earlier_one() -> None:
    class Second(Log):
        def append(
            self, batch: RecordBatch, *, born_host: bytes | None, store_host: bytes
        ) -> AppendResult:
            if self.batches:
                raise StoreFailed("gone")
            return super().append(batch, born_host=born_host, store_host=store_host)

    async def main() -> None:
        records = [PLAIN, replace(PLAIN, born_host=V6_HOST)]
        with pytest.raises(StoreFailed) as caught:
            World(Second()).writer().append(records)
        assert caught.value.may_have_happened
        with pytest.raises(StoreFailed) as caught:
            await World(Second()).writer().put(records)
        assert caught.value.may_have_happened

    run(main)
