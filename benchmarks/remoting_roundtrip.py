"""Cost of a round trip through the seam, and through bare grpc.aio beside it.

Two processes on one machine: a server that answers at once, and a client that measures.

    python benchmarks/remoting_roundtrip.py --rounds 5
"""

import argparse
import asyncio
import functools
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

import grpc.aio

from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_remoting.grpc_options import CLIENT_OPTIONS, server_options
from ternmq_remoting.network_config import NetworkConfig
from ternmq_remoting.rpc import (
    Address,
    Call,
    ClientStream,
    Connection,
    Handler,
    Identity,
    ServerStream,
    stream,
    unary,
)
from ternmq_remoting.service_methods import SEND, SEND_STREAM

KIB: Final = 1 << 10
MIB: Final = 1 << 20
UNANSWERED_MAX: Final = 2
"""As many batches as a producer has under way."""

Request = messages.SendStreamRequest
Reply = messages.SendStreamReply


class Echo:
    """Answers sends with small replies, and a batch marked as a retry with its own bytes."""

    def handlers(self) -> Sequence[Handler]:
        """Return what this service serves."""
        return [unary(SEND, self.send), stream(SEND_STREAM, self.send_stream)]

    async def send(self, request: messages.SendRequest, call: Call) -> messages.SendReply:
        """Answer one message."""
        return messages.SendReply(message_id=request.topic, queue_offset=call.peer.port)

    async def send_stream(self, requests: ServerStream[Request, Reply], call: Call) -> None:
        """Answer each batch."""
        while (request := await requests.read()) is not None:
            offsets = request.batch.records if request.batch.is_retry else b""
            stored = messages.SendBatchReply(stored_at_ms=1, queue_offsets=offsets)
            await requests.write(Reply(stored=stored))


async def bare_send(raw: bytes, _context: object) -> bytes:
    """Answer one message without any of our own code."""
    request = messages.SendRequest.FromString(raw)
    return messages.SendReply(message_id=request.topic).SerializeToString()


async def bare_stream(_requests: object, context: Any) -> None:
    """Answer each batch without any of our own code."""
    while (raw := await context.read()) is not grpc.aio.EOF:
        request = Request.FromString(raw)
        offsets = request.batch.records if request.batch.is_retry else b""
        stored = messages.SendBatchReply(stored_at_ms=1, queue_offsets=offsets)
        await context.write(Reply(stored=stored).SerializeToString())


async def serve() -> None:
    """Serve until standard input ends, and print the ports: the seam's, then the bare one's."""
    bare = grpc.aio.server(options=server_options(NetworkConfig()))
    methods: dict[str, Any] = {
        "Send": grpc.unary_unary_rpc_method_handler(bare_send),
        "SendStream": grpc.stream_stream_rpc_method_handler(bare_stream),
    }
    handlers = grpc.method_handlers_generic_handler("ternmq.v1.Messages", methods)
    bare.add_generic_rpc_handlers([handlers])
    bare_port = bare.add_insecure_port("127.0.0.1:0")
    await bare.start()
    identity = Identity("bench", "echo", 0, 1)
    listen = Address("127.0.0.1", 0)
    async with GrpcNetwork().serve(Echo().handlers(), listen, identity=identity) as seam:
        print(seam.address.port, bare_port, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await bare.stop(None)


async def percentiles(call: Callable[[], Awaitable[object]], count: int) -> str:
    """Return p50 and p99 of `count` calls, one after the other, in microseconds."""
    taken_us: list[float] = []
    for index in range(count + count // 10):
        begun = time.perf_counter()
        await call()
        if index >= count // 10:
            taken_us.append((time.perf_counter() - begun) * 1e6)
    return f"p50 {statistics.median(taken_us):6.0f} µs  p99 {quantile(taken_us, 0.99):6.0f} µs"


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value that `part` of `values` do not exceed."""
    return sorted(values)[int(len(values) * part)]


async def throughput(
    write: Callable[[], Awaitable[object]], read: Callable[[], Awaitable[object]], count: int
) -> float:
    """Return MiB batches a second, `UNANSWERED_MAX` of them under way."""
    room = asyncio.Semaphore(UNANSWERED_MAX)

    async def reader() -> None:
        for _ in range(count):
            await read()
            room.release()

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(reader())
        for _ in range(count):
            await room.acquire()
            await write()
    return count / (time.perf_counter() - begun)


def batch(size: int, *, echo: bool) -> Request:
    """Return a batch of `size` bytes; with `echo` the reply has as many."""
    return Request(batch=messages.SendBatch(records=bytes(size), is_retry=echo))


async def measure_seam(link: Connection, batches: int) -> dict[str, str]:
    """Measure through `GrpcNetwork`."""
    small = messages.SendRequest(topic="T", body=bytes(KIB))
    found = {"unary 1 KiB": await percentiles(lambda: link.call(SEND, small, timeout_s=3), 2000)}
    calls: ClientStream[Reply, Request] = link.open(SEND_STREAM)

    async def round_trip() -> None:
        await calls.write(batch(KIB, echo=False))
        await calls.read()

    found["stream 1 KiB"] = await percentiles(round_trip, 4000)
    for name, echo in (("up", False), ("both ways", True)):
        write = functools.partial(calls.write, batch(MIB, echo=echo))
        await throughput(write, calls.read, batches // 10)
        rate = await throughput(write, calls.read, batches)
        found[f"1 MiB {name}"] = f"{rate * MIB / 1e9:6.2f} GB/s"
    await calls.finish()
    return found


async def measure_bare(port: int, batches: int) -> dict[str, str]:
    """Measure the same through bare grpc.aio."""
    options = CLIENT_OPTIONS
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        send = cast("Any", channel.unary_unary(SEND.path))
        small = messages.SendRequest(topic="T", body=bytes(KIB))

        async def one() -> None:
            messages.SendReply.FromString(await send(small.SerializeToString(), timeout=3))

        found = {"unary 1 KiB": await percentiles(one, 2000)}
        calls = cast("Any", channel.stream_stream(SEND_STREAM.path))()

        async def read() -> None:
            Reply.FromString(await calls.read())

        async def round_trip() -> None:
            await calls.write(batch(KIB, echo=False).SerializeToString())
            await read()

        found["stream 1 KiB"] = await percentiles(round_trip, 4000)
        for name, echo in (("up", False), ("both ways", True)):
            request = batch(MIB, echo=echo)

            async def write(request: Request = request) -> None:
                await calls.write(request.SerializeToString())

            await throughput(write, read, batches // 10)
            rate = await throughput(write, read, batches)
            found[f"1 MiB {name}"] = f"{rate * MIB / 1e9:6.2f} GB/s"
        await calls.done_writing()
    return found


async def measure(ports: Sequence[int], rounds: int, batches: int) -> None:
    """Print every figure of every round."""
    for _ in range(rounds):
        link = await GrpcNetwork().connect([Address("127.0.0.1", ports[0])])
        for name, figure in (await measure_seam(link, batches)).items():
            print(f"seam  {name:16} {figure}", flush=True)
        await link.close()
        for name, figure in (await measure_bare(ports[1], batches)).items():
            print(f"bare  {name:16} {figure}", flush=True)


def main() -> None:
    """Start the server as a process of its own and measure against it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=500, help="of 1 MiB")
    chosen = parser.parse_args()
    if chosen.serve:
        asyncio.run(serve())
        return
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ports = [int(port) for port in process.stdout.readline().split()]
        asyncio.run(measure(ports, chosen.rounds, chosen.batches))
        process.stdin.close()


if __name__ == "__main__":
    main()
