"""Processes of the demos: a cluster on this machine, commands of `ternmq`, and a producer."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from ternmq import Producer, ProducerConfig

PATIENCE_S = 120.0
"""Longest wait for what takes some seconds while nothing else runs on the machine."""

_LINE_BYTES_MAX = 16 << 20


@asynccontextmanager
async def process(*arguments: str | Path, stdin: int | None = None) -> AsyncGenerator[Process]:
    """Run a process of this Python while the block runs; it is killed if it then still runs."""
    started = await asyncio.create_subprocess_exec(
        sys.executable, *map(str, arguments), stdin=stdin, stdout=PIPE, limit=_LINE_BYTES_MAX
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


async def ternmq(*arguments: str) -> bytes:
    """Run a command of `ternmq` and return what it prints."""
    async with process("-m", "ternmq", *arguments) as started:
        output, _ = await started.communicate()
        if started.returncode:
            raise SystemExit(f"ternmq {' '.join(arguments)} failed with {started.returncode}")
        return output


@asynccontextmanager
async def dev(data: Path) -> AsyncGenerator[str]:
    """Run `ternmq dev` while the block runs, and yield its NameServer's address."""
    arguments = ("--port-nameserver", "0", "--port-broker", "0", "--set", "logging.level=warning")
    async with process("-m", "ternmq", "dev", "--data", data, *arguments) as started:
        assert started.stdout is not None
        nameserver = ""
        async for line in started.stdout:
            word, *rest = line.decode().split()
            if word == "nameserver":
                nameserver = rest[-1]
            if word == "broker":
                break
        else:
            raise SystemExit("ternmq dev did not start")
        yield nameserver
        started.send_signal(signal.SIGINT)
        await asyncio.wait_for(started.wait(), PATIENCE_S)


def flight_board(nameserver: str) -> Producer:
    """Return the producer of the flights. It is as patient as the demos are."""
    config = ProducerConfig(send_timeout_s=PATIENCE_S)
    return Producer("flight-board", nameserver=nameserver, config=config)
