"""A step of a query, or of a batch read, that stops in the middle until a test lets it go on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ternmq_runtime.clock import rest

if TYPE_CHECKING:
    import pyarrow as pa

LOOKS = 10_000
LOOK_S = 0.05


class Gate:
    """Two files: tasks make one when they have rows, the test the other to let them go on.

    Args:
        folder: Where the files lie; exists.
    """

    def __init__(self, folder: Path) -> None:
        self._reached = folder / "reached"
        self._opened = folder / "opened"

    def wait(self) -> None:
        """Wait until a task has rows and stands."""
        _wait_for(self._reached)

    def open(self) -> None:
        """Let all tasks go on."""
        self._opened.touch()

    def step(self) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
        """Return what `DataFrame.mapInArrow` takes: it hands all rows on, the first ones late."""
        reached, opened = self._reached, self._opened

        def hold(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            for batch in batches:
                reached.touch()
                _wait_for(opened)
                yield batch

        return hold


def _wait_for(file: Path) -> None:
    for _ in range(LOOKS):
        if file.exists():
            return
        rest(LOOK_S)
    raise AssertionError(f"{file} is not made")
