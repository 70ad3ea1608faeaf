"""A broker whose disk is full, or dies, under real load on a real file system."""

import asyncio
import contextlib
import os
import random
import shutil
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ternmq_model.errors import RefusedError, TransportError
from ternmq_model.response_code import ResponseCode as Code
from ternmq_store.config import FlushMode
from tests.support.brokers import Client, bodies, connected
from tests.support.disks import loop_disk, memory_disk
from tests.support.processes import TINY, ServiceProcess, running_broker

MIB = 1 << 20
SOON_S = 200.0
RESUMES_S = 60.0


class Load:
    """Sends to one broker, a message at a time, and remembers what it acknowledged."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.acknowledged: dict[tuple[str, int], bytes] = {}
        self.count = 0

    async def send(self) -> RefusedError | None:
        """Send one message; return why it was refused, if it was."""
        topic = f"T{self.count % 3}"
        body = b"%09d" % self.count + random.Random(self.count).randbytes(20_000)
        self.count += 1
        try:
            reply = await self.client.send(topic, body)
        except RefusedError as error:
            return error
        self.acknowledged[topic, reply.queue_offset] = body
        return None

    async def send_until_refused(self) -> RefusedError:
        """Send until there is no room."""
        while (error := await self.send()) is None:
            pass
        return error

    async def send_until_taken(self) -> None:
        """Try until one message is taken, which must be soon."""
        begun_s = time.monotonic()
        while (refused := await self.send()) is not None:
            assert time.monotonic() - begun_s < RESUMES_S, refused

    async def check_all(self) -> None:
        """Read every queue and find everything that was acknowledged."""
        found: dict[tuple[str, int], bytes] = {}
        for topic in {topic for topic, _ in self.acknowledged}:
            offset = 0
            while (reply := await self.client.pull(topic, offset)).records:
                for body in bodies(reply):
                    found[topic, offset] = body
                    offset += 1
        assert {key: found.get(key) for key in self.acknowledged} == self.acknowledged


def fill(path: Path) -> None:
    """Write a file that takes all the space there is."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(64 << 10))
    assert shutil.disk_usage(path).free == 0


def running(
    folder: Path, data: Path, mode: FlushMode = FlushMode.SYNC, settings: Sequence[str] = ()
) -> ServiceProcess:
    """Start a broker on `data`; its log lies in `folder`, on a disk with space."""
    settings = (*TINY, f"broker.flush_mode={mode.value}", *settings)
    return running_broker(folder / "broker", "", data=data, settings=settings)


@asynccontextmanager
async def loading(process: ServiceProcess) -> AsyncGenerator[Load]:
    """Give a load of a broker that has its topics, of one queue each; it has to end soon."""
    async with asyncio.timeout(SOON_S), connected(process.broker) as client:
        for number in range(3):
            await client.put_topic(f"T{number}", 1)
        yield Load(client)


@pytest.mark.parametrize("mode", FlushMode)
def test_full_disk_refuses_sends_serves_reads_and_recovers_with_space(
    tmp_path: Path, mode: FlushMode
) -> None:
    async def main(disk: Path, process: ServiceProcess) -> None:
        async with loading(process) as load:
            refused = await load.send_until_refused()
            assert refused.code == Code.SERVICE_NOT_AVAILABLE
            assert not refused.may_have_happened
            assert len(load.acknowledged) > 100
            await load.check_all()
            # Not a byte is left, and still: new queues, old queues, reads.
            fill(disk / "more")
            for _ in range(30):
                assert await load.send() is not None
            with pytest.raises((RefusedError, TransportError)):
                await load.client.send("new-topic", b"body")
            await load.check_all()
            assert process.process.poll() is None
            (disk / "more").unlink()
            (disk / "ballast").unlink()
            # The rest of the present file may take one before the next file has been tried again.
            for _ in range(100):
                await load.send_until_taken()
            await load.check_all()

    with memory_disk(tmp_path / "disk", size_bytes=24 * MIB) as disk:
        with (disk / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 12 * MIB)
        with running(tmp_path, disk / "data", mode) as process:
            asyncio.run(main(disk, process))
        assert process.process.returncode == 0
        assert not (disk / "data" / "abort").exists()


@pytest.mark.parametrize("killed", [True, False])
def test_broker_starts_on_a_full_disk_so_that_consumers_can_read_on(
    tmp_path: Path, killed: bool
) -> None:
    load: list[Load] = []

    async def until_full(disk: Path, process: ServiceProcess) -> None:
        async with loading(process) as begun:
            load.append(begun)
            await begun.send_until_refused()
            fill(disk / "more")

    async def read_on(disk: Path, process: ServiceProcess, *, ends: bool) -> None:
        async with asyncio.timeout(SOON_S), connected(process.broker) as load[0].client:
            await load[0].check_all()
            assert await load[0].send() is not None
            if ends:
                (disk / "ballast").unlink()
                await load[0].send_until_taken()

    with memory_disk(tmp_path / "disk", size_bytes=24 * MIB) as disk:
        with (disk / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 12 * MIB)
        for number in range(4):
            with running(tmp_path, disk / "data") as process:
                if number == 0:
                    asyncio.run(until_full(disk, process))
                else:
                    asyncio.run(read_on(disk, process, ends=number == 3))
                if killed:
                    process.kill()
            fill(disk / f"more-{number}")  # to the last byte, whatever this start left


def test_small_disk_keeps_the_newest_messages_and_takes_more(tmp_path: Path) -> None:
    async def main(process: ServiceProcess) -> None:
        async with loading(process) as load:
            while load.count * 20_000 < 60 * MIB:
                if await load.send() is not None:
                    await load.send_until_taken()
            topic, newest = list(load.acknowledged)[-1]
            reply = await load.client.pull(topic, newest)
            assert bodies(reply) == [load.acknowledged[topic, newest]]
            assert reply.min_offset > 0

    with memory_disk(tmp_path / "disk", size_bytes=24 * MIB) as disk:
        often = ("clean_delay_ms=0", "clean_interval_ms=500", "delete_pause_ms=5")
        settings = [f"store.{each}" for each in often]
        with running(tmp_path, disk / "data", FlushMode.ASYNC, settings) as process:
            asyncio.run(main(process))
        assert process.process.returncode == 0


@pytest.mark.parametrize("mode", FlushMode)
def test_dying_disk_ends_acknowledgement_and_keeps_acknowledged_messages(
    tmp_path: Path, mode: FlushMode
) -> None:
    disk = loop_disk(tmp_path / "disk", size_bytes=64 * MIB)
    acknowledged: dict[tuple[str, int], bytes] = {}

    async def until_it_dies(process: ServiceProcess) -> None:
        async with loading(process) as load:
            for _ in range(200):
                assert await load.send() is None
            acknowledged.update(load.acknowledged)
            disk.lose_power()
            while True:
                # Whatever the disk refused first, the broker has said so before it answers again.
                has_failed = "store failed" in process.log.read_text()
                refused = await load.send()
                if refused is not None:
                    break
                assert mode is FlushMode.ASYNC
                assert not has_failed
            for _ in range(50):
                assert refused.code == Code.SERVICE_NOT_AVAILABLE
                refused = await load.send()
                assert refused is not None
            assert "store failed" in process.log.read_text()
            await load.check_all()  # reads go on

    async def check(process: ServiceProcess) -> None:
        async with asyncio.timeout(SOON_S), connected(process.broker) as client:
            load = Load(client)
            if mode is FlushMode.SYNC:
                load.acknowledged = acknowledged
            await load.check_all()
            assert await load.send() is None

    with disk.mounted() as folder, running(tmp_path, folder / "data", mode) as process:
        asyncio.run(until_it_dies(process))
        process.kill()
    assert len(acknowledged) == 200
    with disk.mounted() as folder, running(tmp_path, folder / "data", mode) as process:
        asyncio.run(check(process))
