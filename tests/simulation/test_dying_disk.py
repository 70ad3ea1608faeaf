"""A broker's disk dies, or one file on it: acknowledgement ends with the first failed call."""

import asyncio
import contextlib
import errno
from pathlib import Path

import pytest

from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_store.config import FlushMode
from ternmq_testing.memory.memory_files import MemoryFile, MemoryFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, bodies, serving, world

DEAD = "Input/output error"


class DyingDisk(MemoryFileSystem):
    """A disk that refuses writes and syncs of paths with `dead` in them; None = of no path."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: str | None = None
        self.has_failed = False

    def touch(self, path: Path) -> None:
        """Write to `path`, or sync it."""
        if self.dead is not None and self.dead in str(path):
            self.has_failed = True
            raise OSError(errno.EIO, DEAD, str(path))

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        opened = super().open(path, create=create, read_only=read_only)
        return opened if read_only else DyingFile(self, path, opened)


class DyingFile(MemoryFile):
    """An open file of a `DyingDisk`."""

    def __init__(self, disk: DyingDisk, path: Path, opened: MemoryFile) -> None:
        super().__init__(disk, path, disk.nodes[opened.path])
        self._disk = disk

    def write(self, position: int, data: bytes | memoryview) -> None:
        self._disk.touch(self.path)
        super().write(position, data)

    def sync(self) -> None:
        self._disk.touch(self.path)
        super().sync()


async def commit(client: Client, offset: int) -> None:
    """Commit an offset of the only queue."""
    each = groups.QueueOffset(topic="A", queue_id=0, offset=offset)
    request = groups.CommitOffsetsRequest(group="G", offsets=[each])
    with contextlib.suppress(RefusedError):
        await client.call(service_methods.COMMIT_OFFSETS, request)


async def send(client: Client, body: bytes) -> Code | None:
    """Send one message; return why it was refused."""
    try:
        await client.send("A", body, queue_id=0)
    except RefusedError as error:
        return Code(error.code)
    return None


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize(
    "dead",
    [
        "",
        "abort",
        "checkpoint",
        "consumequeue",
        "consumerOffset.json",
        "index",
        "commitlog/",
        "commitlog.next",
    ],
)
def test_acknowledgement_ends_with_the_first_failed_call(dead: str, mode: FlushMode) -> None:
    if (dead, mode) == ("abort", FlushMode.SYNC):
        return  # nothing is written there while it serves

    async def main() -> None:
        async with world(flush_mode=mode, offsets_interval_ms=1000) as around:
            disk = around.files = DyingDisk()
            broker = around.broker()
            await broker.__aenter__()
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            assert await send(client, b"safe") is None
            disk.dead, count = dead, 0
            async with asyncio.timeout(60):
                while not disk.has_failed:
                    if dead == "consumerOffset.json":
                        await commit(client, 1)
                    await send(client, b"doubtful" + bytes(20_000))
                    count += 1
                    await asyncio.sleep(0.01)
            if dead in {"", "abort"}:
                assert count <= 6  # 50 ms
            for _ in range(50):
                assert await send(client, b"later") is Code.SERVICE_NOT_AVAILABLE
                await asyncio.sleep(0.1)
            assert bodies(await client.pull("A"))[0] == b"safe"
            disk.dead = None
            assert await send(client, b"still") is Code.SERVICE_NOT_AVAILABLE
            await client.connection.close()
            await broker.__aexit__(None, None, None)

    run_in_virtual_time(main())


def test_answers_that_wait_their_turn_are_not_given_by_failed_store() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            sender = await client.open_sender()
            around.sync_s = 1.0
            await sender.write(sender.record("New", b"waits for its topic"))
            await sender.write(sender.record("A", b"waits for its turn"))
            await sender.write(sender.record("A", b"refused"), sizes=[1])
            await asyncio.sleep(0.5)
            around.files.sync_error = OSError(errno.EIO, DEAD)
            for _ in range(2):
                answer = await sender.read()
                assert answer.status.code == Code.SERVICE_NOT_AVAILABLE
                assert answer.status.may_have_happened
            answer = await sender.read()
            assert answer.status.code != Code.SERVICE_NOT_AVAILABLE
            assert not answer.status.may_have_happened
            around.sync_s, around.files.sync_error = 0.0, None

    run_in_virtual_time(main())
