"""A disk of which, at every step, what a crash in that moment would leave is told."""

from collections.abc import Callable
from random import Random

import numpy as np

from ternmq_testing.memory.memory_files import Node, PowerLossFileSystem
from tests.support.failpoints import FailingDisk

Look = Callable[[int, PowerLossFileSystem], None]


class MomentDisk(FailingDisk):
    """Calls back before each step that is watched, with what the next start would find.

    Args:
        random: Draws what a loss of power takes.
        look: Called with the number of the step.
        loses_power: Else the process alone is killed: everything written stays.

    Attributes:
        watched: The numbers of the steps that are looked at.
    """

    def __init__(self, random: Random, look: Look, *, loses_power: bool) -> None:
        super().__init__()
        self.watched: range = range(0)
        self._random = random
        self._look = look
        self._loses_power = loses_power

    def step(self, kind: str) -> None:
        """Count a step."""
        number = len(self.steps)
        super().step(kind)
        if number in self.watched:
            self._look(number, self.lose_power(self._random) if self._loses_power else self._all())

    def _all(self) -> PowerLossFileSystem:
        left = PowerLossFileSystem()
        left.made_folders = set(self.made_folders)
        changes: list[tuple[object, Node]] = []
        for path, node in self.nodes.items():
            data = np.array(node.data, dtype=np.uint8)
            kept = Node(data, data.copy(), len(data))
            left.record((path, kept))
            changes.append((path, kept))
        for folder in sorted(left.made_folders):
            left.sync_folder(folder)
        return left
