"""What a human decides of a log that no start takes over."""

from pathlib import Path

import pytest

from ternmq_model.errors import StoreError, UsageError
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.inspection.log_file_changes import plan_changes
from ternmq_testing.memory.memory_files import MemoryFileSystem, Node
from tests.support.damage import CONFIG, Key, filled, readable
from tests.support.stores import ROOT, open_store, whole

FOLDER = commit_log_folder(ROOT)
ASIDE = ROOT / "aside"
FILE_BYTES = CONFIG.commit_log_file_bytes


def path_of(number: int) -> Path:
    return FOLDER / file_name(number * FILE_BYTES)


def put(files: MemoryFileSystem, path: Path, data: bytes) -> None:
    """Make `data` the content of a file."""
    files.nodes[path] = Node()
    files.open(path).write(0, data)


def unnoted() -> MemoryFileSystem:
    """Return a closed store of which nothing is noted, as RocketMQ leaves one."""
    files = filled(is_clean=True)
    for name in ("ternmq.store", "ternmq.store.bak"):
        files.nodes.pop(ROOT / name, None)
    return files


def before(number: int) -> dict[Key, bytes]:
    """Return the messages of all files but that one."""
    found = readable(open_store(filled(is_clean=True), config=CONFIG))
    at = {key: whole(data).header.physical_offset for key, data in found.items()}
    return {key: data for key, data in found.items() if at[key] // FILE_BYTES != number}


def test_missing_file_is_passed_over_once_its_gap_is_filled() -> None:
    files = unnoted()
    files.remove(path_of(1))
    with pytest.raises(StoreError, match="--fill-gaps"):
        open_store(files, config=CONFIG)
    (step,) = plan_changes(files, ROOT, fill_gaps=True)
    assert step.text == f"go on without {path_of(1)}"
    assert path_of(1) not in files.nodes
    step.run()
    assert readable(open_store(files, config=CONFIG)).items() >= before(1).items()


def test_files_of_another_log_are_moved() -> None:
    files = unnoted()
    name = file_name(50 * FILE_BYTES)
    put(files, FOLDER / name, bytes(FILE_BYTES))
    with pytest.raises(StoreError, match=f"--set-aside {name}`"):
        open_store(files, config=CONFIG)
    for step in plan_changes(files, ROOT, set_aside=[name]):
        step.run()
    assert (FOLDER / name not in files.nodes, ASIDE / name in files.nodes) == (True, True)
    store = open_store(files, config=CONFIG)
    assert readable(store).items() >= before(-1).items()


@pytest.mark.parametrize("file_bytes", [FILE_BYTES, 2 * FILE_BYTES])
def test_length_that_is_not_clear_is_decided(file_bytes: int) -> None:
    files = unnoted()
    for path in [path for path in files.nodes if path.parent == FOLDER and path != path_of(0)]:
        files.remove(path)
    put(files, path_of(4), b"\xff" * 2 * FILE_BYTES)
    with pytest.raises(StoreError, match=f"--file-bytes {file_bytes}`"):
        open_store(files, config=CONFIG)
    for step in plan_changes(files, ROOT, file_bytes=file_bytes, fill_gaps=True):
        step.run()
    lengths = {len(node.data) for path, node in files.nodes.items() if path.parent == FOLDER}
    assert lengths == {0, file_bytes}
    first = {k: v for k, v in before(-1).items() if whole(v).header.physical_offset < FILE_BYTES}
    store = open_store(files, config=CONFIG)
    assert store.log_file_bytes == file_bytes
    assert (
        readable(store).items()
        >= {
            key: data
            for key, data in first.items()
            if whole(data).header.physical_offset + len(data) <= FILE_BYTES
        }.items()
    )


def test_impossible_decisions_are_refused() -> None:
    files = filled(is_clean=True)
    with pytest.raises(UsageError, match="no file nobody"):
        plan_changes(files, ROOT, set_aside=["nobody"])
    with pytest.raises(UsageError, match="no file of 4000 bytes begins at 4096"):
        plan_changes(files, ROOT, file_bytes=4000)
    put(files, FOLDER / file_name(FILE_BYTES << 20), b"far")
    with pytest.raises(UsageError, match="files are missing"):
        plan_changes(files, ROOT, fill_gaps=True)
