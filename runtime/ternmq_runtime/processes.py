"""Child processes that run a module of ours and talk over their standard input and output.

A child is spawned, never forked: a process that has threads and gRPC in it cannot be forked. What
it writes to standard error goes where its parent's goes. It is to end when its input does, which
also happens when its parent is killed.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

_READ_BYTES: Final = 256 << 10


class ChildProcess(Protocol):
    """A child that was spawned. Used by one event loop."""

    @property
    def pid(self) -> int:
        """Process id of the child."""
        ...

    @property
    def has_ended(self) -> bool:
        """True when the child does not run any more."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes to its standard input. Cancelling may lose part of them.

        Raises:
            OSError: It does not take them: it has ended, or is about to.
        """
        ...

    async def read(self) -> bytes:
        """Return what it writes next, at most 256 KiB; nothing when it has closed its output.

        What is not asked for stays in the pipe, so that a child waits whose reader is slow. One
        task may read at a time. Cancelling is safe: nothing is lost.
        """
        ...

    def kill(self) -> None:
        """End it at once. Safe to repeat."""
        ...

    async def end(self) -> int:
        """Close its input, upon which it is to end, wait for that, and return its exit code.

        A code below 0 is the signal that ended it. Cancelling leaves it ending.
        """
        ...


class Processes(Protocol):
    """Spawns child processes."""

    def spawn(self, module: str) -> ChildProcess:
        """Run a module by this interpreter in a process of its own. Blocks for some milliseconds.

        Raises:
            OSError: That cannot be done now.
        """
        ...


class PythonProcesses:
    """The real `Processes`."""

    def spawn(self, module: str) -> ChildProcess:
        """Run a module; see `Processes.spawn`."""
        command = (sys.executable, "-P", "-m", module)  # nothing from where we happen to stand
        pipe = subprocess.PIPE
        return _Child(subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0))


class _Child:
    """One child. Its pipes are read and written without waiting, on the loop."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None, "it is a pipe"
        assert process.stdout is not None, "it is a pipe"
        self._process = process
        self._input, self._output = process.stdin, process.stdout
        for pipe in (self._input, self._output):
            os.set_blocking(pipe.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    async def write(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        while data:
            try:
                data = data[os.write(self._input.fileno(), data) :]
            except BlockingIOError:
                await _ready(self._input.fileno(), loop.add_writer, loop.remove_writer)

    async def read(self) -> bytes:
        loop, fd = asyncio.get_running_loop(), self._output.fileno()
        while True:
            try:
                return os.read(fd, _READ_BYTES)
            except BlockingIOError:
                await _ready(fd, loop.add_reader, loop.remove_reader)

    def kill(self) -> None:
        self._process.kill()

    async def end(self) -> int:
        self._input.close()
        if not self._output.closed:
            while await self.read():
                pass
            self._output.close()
        return self._process.wait()  # its output ends with it


async def _ready(fd: int, watch: Callable[..., Any], unwatch: Callable[[int], Any]) -> None:
    """Wait until a pipe can be used without blocking."""
    ready = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    watch(fd, wake)
    try:
        await ready
    finally:
        unwatch(fd)
