"""Files of a running broker are removed by somebody else."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendStatus
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from tests.support.console import json_of
from tests.support.processes import eventually, running_broker, running_nameserver

TOPIC = "payments"


def written_log_file(data: Path) -> Path:
    """Return the file of the log that is written."""
    return min((data / "commitlog").iterdir())


def topic_table(data: Path) -> Path:
    """Return the file of the topics."""
    return data / "config" / "topics.json"


async def send_until_refused(nameserver: str, remove: Callable[[], None]) -> int:
    """Send one message after the other, remove a file, and return how many were stored."""
    config = ProducerConfig(send_timeout_s=2)
    async with Producer("p", nameserver=nameserver, config=config) as producer:
        stored = 0

        async def is_refused() -> bool:
            nonlocal stored
            try:
                result = await producer.send(Message(TOPIC, b"x"))
            except TernError:
                return True
            stored += result.status is SendStatus.SEND_OK
            return False

        assert not await is_refused()
        await asyncio.sleep(2)  # a table counts once it has been seen
        remove()
        assert await eventually(is_refused)
        with pytest.raises(TernError, match="another program removed or replaced it"):
            await producer.send(Message(TOPIC, b"y"))
        return stored


@pytest.mark.parametrize("path_of", [written_log_file, topic_table])
@pytest.mark.parametrize("flush_mode", ["sync", "async"])
def test_broker_whose_file_is_removed_refuses_sends_and_the_file_can_be_put_back(
    tmp_path: Path, flush_mode: str, path_of: Callable[[Path], Path]
) -> None:
    with running_nameserver(tmp_path / "nameserver") as names:
        words = ("--set", f"broker.flush_mode={flush_mode}")
        with running_broker(tmp_path / "a", names.nameserver, *words) as broker:
            path = path_of(broker.data)
            kept = bytearray()

            def remove() -> None:
                kept[:] = path.read_bytes()
                path.unlink()

            stored = asyncio.run(send_until_refused(names.nameserver, remove))
            lines = [line for line in broker.log.read_text().splitlines() if "ERROR" in line]
            assert any("store failed" in line and f"{path}" in line for line in lines)
            if path_of is written_log_file:
                kept[:] = open_bytes(broker.process.pid, path)
            path.write_bytes(kept)
        with running_broker(tmp_path / "a", names.nameserver, *words):
            rows = json_of("topic", "status", TOPIC, "--nameserver", names.nameserver)
            assert sum(row["messages"] for row in rows) >= stored


def open_bytes(pid: int, path: Path) -> bytes:
    """Return what a process has of a file that was removed."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if os.readlink(link) == f"{path} (deleted)":
            return link.read_bytes()
    raise AssertionError(f"{path} is not open")
