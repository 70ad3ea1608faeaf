"""Child processes that run a module and talk over their standard input and output.

A child is spawned, never forked: a process with threads and gRPC cannot be forked. Parent and child
share standard error. A child must end at the end of its input, which also comes when its parent is
killed.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

_READ_BYTES: Final = 256 << 10


class ChildProcess(Protocol):
    """Spawned child process. Used by one event loop."""

    @property
    def pid(self) -> int:
        """Process id of the child."""
        ...

    @property
    def has_ended(self) -> bool:
        """True after the end of the child."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes to the standard input. Cancelling may lose a part of them.

        Raises:
            OSError: The child has ended or is ending.
        """
        ...

    async def read(self) -> bytes:
        """Return the next bytes of its standard output, at most 256 KiB; empty at the end.

        Unread bytes stay in the pipe, so a child waits for a slow reader. Only one task may read at
        a time. Cancelling is safe: no byte is lost.
        """
        ...

    def kill(self) -> None:
        """Kill the child. Safe to repeat."""
        ...

    async def end(self) -> int:
        """Close the input, wait for the end of the child, and return its exit code.

        A code below 0 is the signal that killed the child. After cancelling the child still ends.
        """
        ...


class Processes(Protocol):
    """Spawns child processes."""

    def spawn(self, module: str) -> ChildProcess:
        """Run a module by this interpreter in a new process. Blocks for some milliseconds.

        Raises:
            OSError: The system cannot create the process.
        """
        ...


class PythonProcesses:
    """`Processes` of the operating system."""

    def spawn(self, module: str) -> ChildProcess:
        """Run a module. See `Processes.spawn`."""
        command = (sys.executable, "-P", "-m", module)  # no module from the working directory
        pipe = subprocess.PIPE
        return _Child(subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0))


class _Child:
    """Child process with non-blocking pipes, on the event loop."""

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
    """Wait until a pipe is ready."""
    ready = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    watch(fd, wake)
    try:
        await ready
    finally:
        unwatch(fd)
