"""Cost of bare sends and reads, without a broker's other work: the floor of this machine.

Two processes, gRPC between them, records in one mapped file, eight queues in memory. There is no
topic, no session, no retry and no recovery here: what a product adds to this is its own cost.

    python benchmarks/bare_path.py serve --data DIR [--sync]
    python benchmarks/bare_path.py load --port PORT --scale 1
"""

import argparse
import asyncio
import mmap
import os
import struct
import sys
import time
import zlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any, Final

import grpc.aio
import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import BACKLOG
from benchmarks.patterns import BODY_BYTES, MANY, Enqueue, Send, many, measure, scaled, tell
from ternmq_protos.v1 import messages_pb2 as messages

QUEUES: Final = 8
LOG_BYTES: Final = 4 << 30
BATCH_BYTES_MAX: Final = 1 << 20
UNANSWERED_MAX: Final = 2
READ_MESSAGES_MAX: Final = 1024
READ_BYTES_MAX: Final = 1 << 20
BODY_AT: Final = 88
PROPERTIES: Final = b"UNIQ_KEY\x01%032X\x02TAGS\x01TagA\x02"
TOPIC: Final = b"\x09benchmark"

_HEAD: Final = struct.Struct(">iiiiiqqiq8sq8siqi")
_SHORT: Final = struct.Struct(">h")
_MAGIC: Final = 0xDAA320A7 - (1 << 32)
_UNIT: Final = np.dtype([("at", "<i8"), ("bytes", "<i4")])
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 8 << 20),
    ("grpc.max_send_message_length", 8 << 20),
    ("grpc.so_reuseport", 0),
)

Sent = messages.SendBatch
Stored = messages.SendBatchReply
Wanted = messages.PullSubscribe
Found = messages.PulledRecords


class Log:
    """One mapped file that begins anew when it is full, and where each queue's records lie."""

    def __init__(self, folder: Path) -> None:
        self.file = os.open(folder / "log", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self.file, 0, LOG_BYTES)
        self._map = mmap.mmap(self.file, LOG_BYTES)
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        self._queues = [np.empty(1 << 22, dtype=_UNIT) for _ in range(QUEUES)]
        self._counts = [0] * QUEUES
        self.end = 0

    def append(self, records: bytes, record_sizes: bytes) -> NDArray[np.int64]:
        """Check a batch, number it and keep it; return its queue offsets."""
        sizes = np.frombuffer(record_sizes, dtype="<i4").astype(np.int64)
        if self.end + len(records) > LOG_BYTES:
            self.end = 0
        begin, ends = self.end, np.cumsum(sizes)
        starts = ends - sizes
        view = self._bytes[begin : begin + len(records)]
        self._map[begin : begin + len(records)] = records
        head = view[starts[:, None] + np.arange(16)].view(">i4")
        if not ((head[:, 0] == sizes).all() and (head[:, 1] == _MAGIC).all()):
            raise ValueError("these are not records")
        crcs, source = head[:, 2].tolist(), memoryview(records)
        tail = len(TOPIC) + 2 + len(PROPERTIES % 0)
        for first, last, crc in zip(starts.tolist(), ends.tolist(), crcs, strict=True):
            if zlib.crc32(source[first + BODY_AT : last - tail]) & 0x7FFFFFFF != crc:
                raise ValueError("a body is damaged")
        offsets = self._number(head[:, 3], begin + starts, sizes)
        stamps = np.empty((len(sizes), 2), dtype=">i8")
        stamps[:, 0], stamps[:, 1] = offsets, begin + starts
        view[starts[:, None] + np.arange(20, 36)] = stamps.view(np.uint8).reshape(-1, 16)
        stored = np.full(len(sizes), time.time_ns() // 1_000_000, dtype=">i8")
        view[starts[:, None] + np.arange(56, 64)] = stored.view(np.uint8).reshape(-1, 8)
        self.end += len(records)
        return offsets

    def _number(
        self, queues: NDArray[Any], places: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        offsets = np.empty(len(sizes), dtype=np.int64)
        for queue in range(QUEUES):
            rows = np.flatnonzero(queues == queue)
            first = self._counts[queue]
            last = self._counts[queue] = int(first + len(rows))
            offsets[rows] = np.arange(first, last)
            units = self._queues[queue][first:last]
            units["at"], units["bytes"] = places[rows], sizes[rows]
        return offsets

    def read(self, queue: int, offset: int) -> tuple[bytes, bytes]:
        """Return records of a queue and their sizes, as many as go into one reply."""
        last = min(self._counts[queue], offset + READ_MESSAGES_MAX)
        units = self._queues[queue][offset:last]
        count = int(np.searchsorted(np.cumsum(units["bytes"]), READ_BYTES_MAX, side="right"))
        units = units[:count]
        pairs = zip(units["at"].tolist(), units["bytes"].tolist(), strict=True)
        return b"".join([self._map[at : at + size] for at, size in pairs]), (
            units["bytes"].tobytes()
        )


class Syncs:
    """Has the log on disk for those who wait; one sync serves all that came before it."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._waiting: list[asyncio.Future[None]] = []
        self._came = asyncio.Event()

    async def wait(self) -> None:
        """Return when everything appended so far is on disk."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._came.set()
        await done

    async def run(self) -> None:
        """Sync for ever."""
        while True:
            await self._came.wait()
            self._came.clear()
            waiting, self._waiting = self._waiting, []
            await asyncio.to_thread(os.fdatasync, self._log.file)
            for done in waiting:
                done.set_result(None)


async def serve(folder: Path, *, sync: bool) -> None:
    """Serve until standard input ends; print the port when ready."""
    log = Log(folder)
    syncs = Syncs(log)

    async def send(requests: AsyncIterator[Sent], _context: object) -> AsyncGenerator[Stored]:
        async for batch in requests:
            offsets = log.append(batch.records, batch.record_sizes)
            if sync:
                await syncs.wait()
            yield Stored(queue_offsets=offsets.tobytes())

    async def read(wanted: Wanted, _context: object) -> AsyncGenerator[Found]:
        offset = wanted.offset
        while True:
            records, sizes = log.read(wanted.queue_id, offset)
            if not records:
                return
            offset += len(sizes) // 4
            yield Found(records=records, record_sizes=sizes, next_offset=offset)

    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Send": grpc.stream_stream_rpc_method_handler(
            send, Sent.FromString, Stored.SerializeToString
        ),
        "Read": grpc.unary_stream_rpc_method_handler(
            read, Wanted.FromString, Found.SerializeToString
        ),
    }
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("bare", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    syncing = asyncio.create_task(syncs.run())
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    syncing.cancel()
    await server.stop(None)


def encode(number: int, body: bytes) -> bytes:
    """Return one record."""
    properties = PROPERTIES % number
    total = _HEAD.size + len(body) + len(TOPIC) + 2 + len(properties)
    crc = zlib.crc32(body) & 0x7FFFFFFF
    queue, host = number % QUEUES, bytes(8)
    head = _HEAD.pack(
        total, _MAGIC, crc, queue, 0, 0, 0, 0, 1, host, 0, host, 0, 0, len(body)
    )  # fmt: skip
    return b"".join((head, body, TOPIC, _SHORT.pack(len(properties)), properties))


def decode(records: bytes) -> list[tuple[tuple[Any, ...], bytes, bytes]]:
    """Return header, body and properties of each record."""
    found: list[tuple[tuple[Any, ...], bytes, bytes]] = []
    at = 0
    while at < len(records):
        head = _HEAD.unpack_from(records, at)
        body_end: int = at + _HEAD.size + head[-1]
        properties_at = body_end + 1 + records[body_end] + 2
        end = at + head[0]
        found.append((head, records[at + _HEAD.size : body_end], records[properties_at:end]))
        at = end
    return found


class BareSender:
    """Messages sent while two batches are unanswered form the next one."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._send: Any = channel.stream_stream(
            "/bare/Send", Sent.SerializeToString, Stored.FromString
        )
        self._call: Any = self._send()
        self._waiting: deque[tuple[bytes, asyncio.Future[object]]] = deque()
        self._unanswered: deque[list[asyncio.Future[object]]] = deque()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._sent = 0

    def send_of(self, body: bytes) -> Send:
        """Return what sends one message and waits for its offset."""

        async def send() -> object:
            return await self._add(body)

        return send

    def enqueue_of(self, body: bytes) -> Enqueue:
        """Return what takes one message and tells its offset later."""

        async def enqueue() -> asyncio.Future[object]:
            return self._add(body)

        return enqueue

    def many_of(self, bodies: Sequence[bytes]) -> Send:
        """Return what sends all of them on a stream of its own, one answer a batch."""
        return lambda: self._send_many(bodies)

    def columns_of(self, buffer: bytes, size: int) -> Send:
        """Return what sends a message with each `size` bytes as a list, which the path knows."""
        return self.many_of([buffer[at : at + size] for at in range(0, len(buffer), size)])

    async def _send_many(self, bodies: Sequence[bytes]) -> None:
        call, room = self._send(), asyncio.Semaphore(UNANSWERED_MAX)

        async def answers() -> None:
            async for _ in call:
                room.release()

        async with asyncio.TaskGroup() as group:
            group.create_task(answers())
            each = max(1, BATCH_BYTES_MAX // 2 // (len(bodies[0]) + 200))
            for first in range(0, len(bodies), each):
                some = bodies[first : first + each]
                records = [encode(first + index, body) for index, body in enumerate(some)]
                await room.acquire()
                await call.write(batch_of(records))
            await call.done_writing()

    def _add(self, body: bytes) -> asyncio.Future[object]:
        self._sent += 1
        done: asyncio.Future[object] = self._loop.create_future()
        self._waiting.append((encode(self._sent, body), done))
        self._changed.set()
        return done

    async def write(self) -> None:
        """Write batches for ever."""
        while True:
            while not self._waiting or len(self._unanswered) >= UNANSWERED_MAX:
                self._changed.clear()
                await self._changed.wait()
            records: list[bytes] = []
            futures: list[asyncio.Future[object]] = []
            size = 0
            while self._waiting and size < BATCH_BYTES_MAX:
                record, done = self._waiting.popleft()
                records.append(record)
                futures.append(done)
                size += len(record)
            self._unanswered.append(futures)
            await self._call.write(batch_of(records))

    async def read(self) -> None:
        """Take answers for ever."""
        async for stored in self._call:
            futures = self._unanswered.popleft()
            self._changed.set()
            offsets = np.frombuffer(stored.queue_offsets, dtype="<i8").tolist()
            for done, offset in zip(futures, offsets, strict=True):
                done.set_result(offset)


def batch_of(records: Sequence[bytes]) -> Sent:
    """Return `records` as they travel."""
    sizes = np.fromiter(map(len, records), dtype="<i4", count=len(records))
    return Sent(records=b"".join(records), record_sizes=sizes.tobytes())


async def load(port: int, only: Collection[str], scale: float) -> None:
    """Measure sending, then reading."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_OPTIONS) as channel:
        sender = BareSender(channel)
        running = [asyncio.create_task(sender.write()), asyncio.create_task(sender.read())]
        await measure(sender, only, scale)
        for task in running:
            task.cancel()
        if only and "pull" not in only:
            return
        total = scaled(BACKLOG, scale)
        await many(sender.many_of([os.urandom(BODY_BYTES)] * MANY), total)
        read: Any = channel.unary_stream("/bare/Read", Wanted.SerializeToString, Found.FromString)

        async def drain(queue: int) -> int:
            count = 0
            async for found in read(Wanted(queue_id=queue)):
                count += len(decode(found.records))
                if count * QUEUES >= total:
                    break
            return count

        begun_s = time.perf_counter()
        count = sum(await asyncio.gather(*map(drain, range(QUEUES))))
        tell("pull", count / (time.perf_counter() - begun_s))


def main() -> None:
    """Serve, or load what serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("serve", "load"))
    parser.add_argument("--data", type=Path, default=Path("."))
    parser.add_argument("--sync", action="store_true", help="answer when it is on disk")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--only", action="append", default=[], help="a measurement")
    parser.add_argument("--scale", type=float, default=1.0)
    chosen = parser.parse_args()
    if chosen.role == "serve":
        asyncio.run(serve(chosen.data, sync=chosen.sync))
    else:
        asyncio.run(load(chosen.port, chosen.only, chosen.scale))


if __name__ == "__main__":
    main()
