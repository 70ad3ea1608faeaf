"""`ternmq store repair`: what it removes comes back as RocketMQ had written it."""

import os
from pathlib import Path

import pytest
from click.testing import Result

from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import RealFileSystem
from tests.support.console import invoke
from tests.support.rocketmq import contents, unpack_store
from tests.support.stores import open_store

CONFIG = StoreConfig(
    commit_log_file_bytes=65_536, consume_queue_file_units=100, index_slots=500, index_entries=400
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a copy of the store."""
    return unpack_store(tmp_path)


def repair(root: Path, *options: str) -> Result:
    """Run the command line with nobody to ask."""
    return invoke("store", "repair", str(root), *options)


def change(path: Path, at: int) -> None:
    """Flip a byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def derived(root: Path) -> dict[str, bytes]:
    """Return consume queues, with their paths, and the index's bytes in order."""
    index = sorted((root / "index").iterdir())
    found = {f"index {number}": path.read_bytes() for number, path in enumerate(index)}
    return found | contents(root / "consumequeue")


def test_sound_store_needs_no_repair(root: Path) -> None:
    before = contents(root)
    done = repair(root, "--yes")
    assert (done.exit_code, done.stdout) == (0, "nothing to remove\n")
    after = contents(root)
    assert after.pop("lock") == b"lock"
    assert after == before


def test_damaged_queues_and_index_are_rebuilt_from_the_log(root: Path) -> None:
    before = derived(root)
    change(root / "consumequeue" / "Orders" / "3" / f"{0:020d}", 20 * 5 + 3)
    change(min((root / "index").iterdir()), 40 + 2_000 + 20 * 9)
    (root / "commitlog.next").write_bytes(b"")
    done = repair(root, "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert not (root / "commitlog.next").exists()
    assert not list((root / "index").iterdir())
    store = open_store(RealFileSystem(), root=root, config=CONFIG)
    store.close()
    assert derived(root) == before


def test_repair_as_another_user_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    done = repair(root, "--queues", "--yes")
    assert (done.exit_code, "run this as that user" in done.stderr) == (2, True)
    assert repair(root, "--queues", "--dry-run").exit_code == 0


def test_repair_without_confirmation_removes_nothing(root: Path) -> None:
    before = contents(root)
    done = repair(root, "--queues", "--index")
    assert done.exit_code == 2
    assert "nothing was changed" in done.stderr
    done = repair(root, "--queues", "--index", "--dry-run")
    assert done.exit_code == 0
    assert "27 consume queues" in done.stdout
    after = contents(root)
    del after["lock"]
    assert after == before


def test_store_in_use_or_not_closed_is_left_alone(root: Path) -> None:
    lock = RealFileSystem().lock(root / "lock")
    done = repair(root, "--queues", "--yes")
    assert done.exit_code == 1
    assert "in use" in done.stderr
    lock.release()
    (root / "abort").touch()
    before = contents(root)
    done = repair(root, "--queues", "--yes")
    assert done.exit_code == 1
    assert "was not closed" in done.stderr
    assert contents(root) == before


def test_missing_store_exits_with_code_3_and_creates_nothing(tmp_path: Path) -> None:
    assert repair(tmp_path, "--yes").exit_code == 3
    assert not list(tmp_path.iterdir())


def corrupt_last_record(root: Path) -> None:
    """Alter the magic number of the last record of a queue of RocketMQ's store."""
    folder = root / "consumequeue" / "Orders" / "0"
    units = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    offsets = [int.from_bytes(units[at : at + 8], "big") for at in range(0, len(units), 20)]
    last = max(offsets)
    change(root / "commitlog" / f"{last // 65_536 * 65_536:020d}", last % 65_536 + 4)


def test_queue_whose_last_record_is_damaged_is_kept(root: Path) -> None:
    corrupt_last_record(root)
    before = contents(root / "consumequeue")
    done = repair(root, "--queues", "--yes")
    assert done.exit_code == 0
    assert "kept: queue 0 of Orders: its last unit points to a damaged record" in done.stdout
    assert (
        contents(root / "consumequeue").items()
        >= {name: data for name, data in before.items() if name.startswith("Orders/0/")}.items()
    )


def test_queue_of_unknown_end_is_kept(root: Path) -> None:
    corrupt_last_record(root)
    queue = root / "consumequeue" / "Orders" / "0" / f"{0:020d}"
    queue.write_bytes(b"\xa5" * queue.stat().st_size)
    before = contents(root / "consumequeue")
    done = repair(root, "--dry-run")
    assert "kept: queue 0 of Orders: its end is noted nowhere" in done.stdout
    assert contents(root / "consumequeue") == before
