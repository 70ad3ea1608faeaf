"""What RocketMQ knows of timed messages is put out of its way."""

from pathlib import Path
from random import Random

import numpy as np

from ternmq_broker.timer.retired_wheel import retire_wheel, retired_folder
from tests.support.files import MemoryFileSystem, Node, PowerLossFileSystem, PowerLost

DATA = Path("/broker")
NAMES = ["timerwheel", f"timerlog/{0:020d}", f"timerlog/{104857600:020d}"]


def put(files: MemoryFileSystem, content: int) -> None:
    """Let RocketMQ have left its wheel."""
    for name in NAMES:
        files.make_folder((DATA / name).parent)
        data = np.full(8, content, dtype=np.uint8)
        files.record((DATA / name, Node(data, data.copy(), 8)))
        files.sync_folder((DATA / name).parent)


def where(files: MemoryFileSystem) -> dict[str, int]:
    return {str(path.relative_to(DATA)): int(node.data[0]) for path, node in files.nodes.items()}


def test_wheel_is_moved_and_replaces_the_one_before() -> None:
    files = MemoryFileSystem()
    assert retire_wheel(files, DATA) == 0
    for content in (1, 2):
        put(files, content)
        assert retire_wheel(files, DATA) == len(NAMES)
        assert where(files) == {f"{retired_folder(DATA).name}/{name}": content for name in NAMES}
    assert retire_wheel(files, DATA) == 0


def test_wheel_is_wholly_moved_after_a_loss_of_power_at_any_change() -> None:
    moved, left = {f"{retired_folder(DATA).name}/{name}": 1 for name in NAMES}, 0
    while True:
        files = PowerLossFileSystem()
        put(files, 1)
        files.happenings_left = left
        try:
            retire_wheel(files, DATA)
        except PowerLost:
            files = files.lose_power(Random(left))
        else:
            break
        retire_wheel(files, DATA)
        assert where(files) == moved
        left += 1
    assert left > len(NAMES)
    assert where(files) == moved
