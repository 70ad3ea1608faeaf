"""Time of one message alone, beside a bare gRPC stream that echoes it.

    python benchmarks/alone.py --rounds 3

A server process echoes 1 KiB on a `grpc.aio` stream. One client process sends to it and another
one to `ternmq dev`: each message after the answer to the one before it, and one every 5 ms. The
table has medians of the rounds. The last column is what a synchronous flush may add: 2.5 times the
median `fdatasync` of 4 KiB.

The echo keeps gRPC's own choice of its I/O engine, and the sender has that of TernMQ.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import grpc.aio

from benchmarks import machine
from benchmarks.figures import MODES
from benchmarks.patterns import BODY_BYTES, Send, alone, tell, told
from benchmarks.services import dev
from ternmq import Message, Producer
from ternmq_remoting.grpc_engine import POLLING, VARIABLE

ECHO: Final = "/bench.Echo/Stream"
PACE_S: Final = 0.005
CLOSED: Final = 4_000
PACED: Final = 600
WARM_UP: Final = 500


async def serve() -> None:
    """Echo until standard input ends, and print the port."""

    async def echo(_requests: object, context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            await context.write(data)

    server = grpc.aio.server()
    handler = cast("Any", grpc.stream_stream_rpc_method_handler(echo))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("bench.Echo", {"Stream": handler})]
    )
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


async def echo_alone(port: int, scale: float) -> None:
    """Report p50 and p99 of the echo, at both paces."""
    body = bytes(BODY_BYTES)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = cast("Any", channel.stream_stream(ECHO)())

        async def echo() -> None:
            await call.write(body)
            await call.read()

        await measure("echo", echo, scale)
        await call.done_writing()


async def send_alone(nameserver: str, scale: float) -> None:
    """Report p50 and p99 of sends, at both paces."""
    body = bytes(BODY_BYTES)
    async with Producer("alone", nameserver=nameserver) as producer:

        async def send() -> None:
            await producer.send(Message("alone", body))

        await measure("send", send, scale)


async def measure(name: str, send: Send, scale: float) -> None:
    """Report p50 and p99 of `send`, at both paces."""
    await alone(send, int(WARM_UP * scale))
    for pace, pace_s, count in (("closed", 0.0, CLOSED), ("paced", PACE_S, PACED)):
        p50, p99 = await alone(send, int(count * scale), pace_s=pace_s)
        tell(f"{name}.{pace}.p50", p50)
        tell(f"{name}.{pace}.p99", p99)


def run_round(parent: Path, mode: str, scale: float) -> dict[str, float]:
    """Return the figures of one round with new services."""
    command = [sys.executable, __file__, "--serve"]
    bare = {name: value for name, value in os.environ.items() if name != VARIABLE}
    pipe = subprocess.PIPE
    with (
        dev(parent, mode) as service,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=bare) as echo,
    ):
        assert echo.stdin is not None
        assert echo.stdout is not None
        port = echo.stdout.readline().strip()
        lines = client(["--port", port, "--scale", str(scale)], bare)
        # This file loads gRPC before TernMQ, unlike a program that only uses TernMQ.
        chosen = {**bare, VARIABLE: POLLING}
        lines += client(["--nameserver", service.nameserver, "--scale", str(scale)], chosen)
        echo.stdin.close()
    return dict(told(lines))


def client(words: list[str], environ: Mapping[str, str]) -> list[str]:
    """Return the output of one client process."""
    command = [sys.executable, __file__, *words]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def show(mode: str, found: dict[str, list[float]], sync_us: float) -> None:
    """Print a row for each pace."""
    middle = {name: statistics.median(values) for name, values in found.items()}
    for pace in ("closed", "paced"):
        echo, send = middle[f"echo.{pace}.p50"], middle[f"send.{pace}.p50"]
        rest = 2.5 * sync_us if mode == "sync" else 0.0
        print(
            f"| {mode} | {pace} | {echo:.0f} | {middle[f'echo.{pace}.p99']:.0f} | {send:.0f} | "
            f"{middle[f'send.{pace}.p99']:.0f} | {(send - rest) / echo:.2f} | {rest:.0f} |",
            flush=True,
        )


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the numbers")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--mode", action="append", choices=MODES, default=[])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--nameserver", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        asyncio.run(serve())
    elif chosen.port:
        asyncio.run(echo_alone(chosen.port, chosen.scale))
    elif chosen.nameserver:
        asyncio.run(send_alone(chosen.nameserver, chosen.scale))
    else:
        print(
            "| flush | pace | echo p50, µs | echo p99 | send p50 | send p99 | ratio of p50 | "
            "allowed for the disk |\n|---|---|--:|--:|--:|--:|--:|--:|"
        )
        for mode in chosen.mode or MODES:
            found: defaultdict[str, list[float]] = defaultdict(list)
            for _ in range(chosen.rounds):
                for name, value in run_round(chosen.data, mode, chosen.scale).items():
                    found[name].append(value)
            show(mode, found, machine.sync_us(chosen.data))


if __name__ == "__main__":
    main()
