"""A broker whose log has files of a wrong length, or none that is surely its own."""

import asyncio
import random
import re
import shlex
from pathlib import Path

import pytest

from tests.support.brokers import connected, stored
from tests.support.console import invoke
from tests.support.processes import TINY, running_broker

MIB = 1 << 20
COUNT = 200


def body(number: int) -> bytes:
    return b"%06d" % number + random.Random(number).randbytes(20_000)


async def send_all(address: str) -> None:
    async with connected(address) as client:
        await client.put_topic("T", 1)
        for number in range(COUNT):
            await client.send("T", body(number), queue_id=0)


async def read_all(address: str) -> dict[int, bytes]:
    """Return every message, by its queue offset."""
    found: dict[int, bytes] = {}
    async with connected(address) as client:
        offset = 0
        while True:
            reply = await client.pull("T", offset)
            found.update({each.queue_offset: each.body for each in stored(reply)})
            if reply.next_offset <= offset:
                return found
            offset = reply.next_offset


def log_file(data: Path, number: int) -> Path:
    return data / "commitlog" / f"{number * MIB:020d}"


def run_command(text: str, containing: str) -> None:
    """Run the command that a line of text names in backquotes."""
    found = [each for each in re.findall(r"`(ternmq [^`]*)`", text) if containing in each]
    done = invoke(*shlex.split(found[0])[1:], "--yes")
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize("is_killed", [True, False])
def test_broker_serves_what_is_sound_of_a_log_with_odd_files(
    tmp_path: Path, is_killed: bool
) -> None:
    folder = tmp_path / "broker"
    with running_broker(folder, "", settings=TINY) as process:
        asyncio.run(send_all(process.broker))
        if is_killed:
            process.kill()
    data = process.data
    with log_file(data, 0).open("ab") as file:
        file.write(b"\n")
    with log_file(data, 2).open("r+b") as file:
        file.truncate(MIB // 2)
    far = data / "commitlog" / f"{900 * MIB:020d}"
    far.write_bytes(b"another log's" + bytes(MIB - 13))
    checked = invoke("store", "check", str(data))
    assert checked.exit_code == 1
    assert f"`ternmq store repair {data} --leftovers`" in checked.stdout
    with running_broker(folder, "", settings=TINY) as process:
        found = asyncio.run(read_all(process.broker))
        lost = set(range(COUNT)) - set(found)
        # Half a file of 52 messages, and the one that lay across the cut.
        assert 25 <= len(lost) <= 28
        assert lost == set(range(min(lost), max(lost) + 1))
        assert all(found[number] == body(number) for number in found)
    errors = [line for line in process.log.read_text().splitlines() if " ERROR " in line]
    for path in (log_file(data, 0), log_file(data, 2), far):
        assert any(f"file={path} " in line for line in errors)
    kept = data / "aside"
    assert (kept / f"{0:020d}.beyond").read_bytes() == b"\n"
    assert (kept / far.name).read_bytes()[:13] == b"another log's"
    (line,) = [line for line in errors if f"file={far} " in line]
    run_command(line, "--leftovers")
    assert not list(kept.iterdir())


def test_refused_log_is_served_after_the_command_of_its_error(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    with running_broker(folder, "", settings=TINY) as process:
        asyncio.run(send_all(process.broker))
    data = process.data
    for name in ("ternmq.store", "ternmq.store.bak"):
        (data / name).unlink(missing_ok=True)
    log_file(data, 1).unlink()
    with (
        pytest.raises(AssertionError, match="is missing") as caught,
        running_broker(folder, "", settings=TINY),
    ):
        pass
    assert log_file(data, 0).stat().st_size == MIB
    shown = invoke("store", "repair", str(data), "--yes")
    assert shown.exit_code == 0
    assert f": ternmq store repair {data} --fill-gaps\n" in shown.stdout
    run_command(str(caught.value), "--fill-gaps")
    with running_broker(folder, "", settings=TINY) as process:
        found = asyncio.run(read_all(process.broker))
    assert 50 <= len(set(range(COUNT)) - set(found)) <= 54
    assert all(found[number] == body(number) for number in found)
