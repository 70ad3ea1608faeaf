"""What RocketMQ knows of timed messages is put out of its way."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np

from ternmq_broker.state.timer_files import retire_wheel, retired_folder
from ternmq_testing.memory.memory_files import (
    MemoryFileSystem,
    Node,
    PowerLossFileSystem,
    PowerLost,
)

DATA = Path("/broker")
NAMES = [f"timerlog/{0:020d}", f"timerlog/{104857600:020d}", "timerwheel"]


def put(files: MemoryFileSystem, content: int, names: Sequence[str]) -> None:
    """Let RocketMQ, or a stop, have left files of these names."""
    for name in names:
        files.make_folder((DATA / name).parent)
        data = np.full(8, content, dtype=np.uint8)
        files.record((DATA / name, Node(data, data.copy(), 8)))
        files.sync_folder((DATA / name).parent)


def where(files: MemoryFileSystem) -> dict[str, int]:
    return {str(path.relative_to(DATA)): int(node.data[0]) for path, node in files.nodes.items()}


def retired(content: int = 1) -> dict[str, int]:
    return {f"{retired_folder(DATA).name}/{name}": content for name in NAMES}


def test_wheel_is_moved_and_replaces_the_one_before() -> None:
    files = MemoryFileSystem()
    assert retire_wheel(files, DATA) == 0
    put(files, 1, NAMES)
    assert retire_wheel(files, DATA) == len(NAMES)
    assert where(files) == retired()
    put(files, 2, NAMES[1:])
    assert retire_wheel(files, DATA) == len(NAMES) - 1
    assert where(files) == {name: 2 for name in retired() if not name.endswith(NAMES[0])}


def test_retired_wheel_is_removed_by_the_next_start() -> None:
    files = MemoryFileSystem()
    put(files, 1, NAMES)
    retire_wheel(files, DATA)
    assert retire_wheel(files, DATA) == 0
    assert not where(files)


def test_timer_log_without_a_wheel_is_removed() -> None:
    files = MemoryFileSystem()
    put(files, 1, NAMES[:2])
    assert retire_wheel(files, DATA) == 0
    assert not where(files)


def test_wheel_is_wholly_moved_after_a_loss_of_power_at_any_change() -> None:
    left = 0
    while True:
        files = PowerLossFileSystem()
        put(files, 1, NAMES)
        files.happenings_left = left
        try:
            retire_wheel(files, DATA)
        except PowerLost:
            files = files.lose_power(Random(left))
        else:
            break
        names = where(files)
        # RocketMQ makes a wheel of a timer log that lies there without one.
        assert NAMES[-1] in names or not names.keys() & set(NAMES)
        retire_wheel(files, DATA)
        assert where(files) == ({} if names == retired() else retired())
        left += 1
    assert left > len(NAMES)
    assert where(files) == retired()
