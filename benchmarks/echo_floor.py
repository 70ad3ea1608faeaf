"""Floor of one message alone: an echo of 1 KiB over grpc.aio and over a bare asyncio connection.

    python benchmarks/echo_floor.py --rounds 3

A server process echoes on both, and one client process measures them in turns: each message after
the answer to the one before it, and one every 5 ms. For one echo the tables have its time, and in
client and server together the processor time and the number of times that a thread waited: once
with gRPC's own I/O engine, and once with the one that TernMQ chooses.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
from collections import defaultdict
from typing import Any, Final, NamedTuple, cast

from benchmarks.alone import CLOSED, ECHO, PACE_S, PACED, WARM_UP
from benchmarks.patterns import BODY_BYTES, Send, alone
from ternmq_remoting.grpc_engine import POLLING, VARIABLE

KINDS: Final = ("asyncio", "grpc.aio")


class Usage(NamedTuple):
    """Use of the processor by one process."""

    user_us: float
    system_us: float
    waits: int


def usage() -> Usage:
    """Return the use by this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(used.ru_utime * 1e6, used.ru_stime * 1e6, used.ru_nvcsw)


async def serve() -> None:
    """Echo until standard input ends; print both ports, then the use after each line of input."""
    import grpc.aio

    async def echo(_requests: object, context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            await context.write(data)

    async def echo_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)

    server = grpc.aio.server()
    handler = cast("Any", grpc.stream_stream_rpc_method_handler(echo))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("bench.Echo", {"Stream": handler})]
    )
    bare = await asyncio.start_server(echo_bytes, "127.0.0.1", 0)
    ports = bare.sockets[0].getsockname()[1], server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps(ports), flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(usage()), flush=True)
    await server.stop(None)


async def measure(server: "subprocess.Popen[str]", rounds: int) -> None:
    """Measure both echoes in turns and print the tables."""
    import grpc.aio

    assert server.stdout is not None
    ports: list[int] = json.loads(server.stdout.readline())
    body = bytes(BODY_BYTES)
    reader, writer = await asyncio.open_connection("127.0.0.1", ports[0])
    found: defaultdict[tuple[str, str], list[list[float]]] = defaultdict(list)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports[1]}") as channel:
        call = cast("Any", channel.stream_stream(ECHO)())

        async def echo_bytes() -> None:
            writer.write(body)
            await reader.readexactly(len(body))

        async def echo() -> None:
            await call.write(body)
            await call.read()

        echoes = dict(zip(KINDS, (echo_bytes, echo), strict=True))
        for number in range(rounds):
            for kind in KINDS if number % 2 else reversed(KINDS):
                for pace, pace_s, count in (("closed", 0.0, CLOSED), ("paced", PACE_S, PACED)):
                    figures = await one_turn(server, echoes[kind], count, pace_s)
                    found[kind, pace].append(figures)
        await call.done_writing()
    writer.close()
    print("| echo of 1 KiB | pace | p50, µs | p99, µs | user, µs | system, µs | waits |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for (kind, pace), rows in sorted(found.items()):
        middle = [statistics.median(values) for values in zip(*rows, strict=True)]
        cells = " | ".join(f"{value:.0f}" for value in middle[:-1])
        print(f"| {kind} | {pace} | {cells} | {middle[-1]:.1f} |")


async def one_turn(
    server: "subprocess.Popen[str]", echo: Send, count: int, pace_s: float
) -> list[float]:
    """Return p50, p99, and the use of both processes, for one echo."""
    await alone(echo, WARM_UP)
    before = usage(), server_usage(server)
    p50, p99 = await alone(echo, count, pace_s=pace_s)
    after = usage(), server_usage(server)
    used = [sum(pair) for pair in zip(*after, strict=True)]
    unused = [sum(pair) for pair in zip(*before, strict=True)]
    return [p50, p99, *((end - begin) / count for end, begin in zip(used, unused, strict=True))]


def server_usage(server: "subprocess.Popen[str]") -> Usage:
    """Return the use by the server so far."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write("\n")
    server.stdin.flush()
    return Usage(*json.loads(server.stdout.readline()))


def main() -> None:
    """Run the rounds with both engines and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        asyncio.run(serve())
    elif chosen.measure:
        command, pipe = [sys.executable, __file__, "--serve"], subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
            asyncio.run(measure(server, chosen.rounds))
            assert server.stdin is not None
            server.stdin.close()
    else:
        own = {name: value for name, value in os.environ.items() if name != VARIABLE}
        for name, environ in (("own", own), ("TernMQ's", {**own, VARIABLE: POLLING})):
            print(f"\n{name} engine:\n", flush=True)
            command = [sys.executable, __file__, "--measure", "--rounds", str(chosen.rounds)]
            subprocess.run(command, env=environ, check=True)


if __name__ == "__main__":
    main()
