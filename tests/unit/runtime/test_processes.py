"""Child processes: spawned, talked to, ended."""

import asyncio
import os
from pathlib import Path

import pytest

from ternmq_runtime.processes import ChildProcess, PythonProcesses

ECHO = """
import os
while data := os.read(0, 65536):
    os.write(1, data)
os._exit(5)
"""
FLOOD = """
import os
block = bytes(1 << 20)
while True:
    os.write(1, block)
"""


def spawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> ChildProcess:
    (tmp_path / "child_of_test.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return PythonProcesses().spawn("child_of_test")


def test_child_reads_and_answers_and_ends_with_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        child = spawn(tmp_path, monkeypatch, ECHO)
        assert not child.has_ended
        sent = os.urandom(1 << 20)
        writing = asyncio.ensure_future(child.write(sent))
        heard = b""
        while len(heard) < len(sent):
            heard += await child.read()
        await writing
        assert heard == sent
        assert await child.end() == 5
        assert await child.end() == 5
        assert child.has_ended

    asyncio.run(main())


def test_cancelled_read_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        child = spawn(tmp_path, monkeypatch, ECHO)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await child.read()
        await child.write(b"word")
        assert await child.read() == b"word"
        await child.end()

    asyncio.run(main())


def test_unread_child_waits_and_can_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        child = spawn(tmp_path, monkeypatch, FLOOD)
        assert len(await child.read()) <= 256 << 10
        child.kill()
        child.kill()
        assert await child.end() == -9
        with pytest.raises((OSError, ValueError)):
            await child.write(b"x")

    asyncio.run(main())
