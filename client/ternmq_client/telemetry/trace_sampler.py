"""Sampling of messages ahead of their spans. Pure: randomness is an argument.

A message that is not sampled costs one subtraction: the number of messages up to the next sampled
one is drawn at once, from the geometric distribution.
"""

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

_NEVER: Final = 1 << 62


class TraceSampler:
    """Sampler of messages, each with the same probability. Owned by one client.

    Args:
        ratio: Probability, 0 to 1.
        random: Source of the distances.
    """

    def __init__(self, ratio: float, random: "Random") -> None:
        self._ratio = ratio
        self._random = random
        self._left = self._gap()

    def takes(self) -> bool:
        """Return whether the next message is sampled."""
        if self._left:
            self._left -= 1
            return False
        self._left = self._gap()
        return True

    def picks(self, count: int) -> list[int]:
        """Return which of the next `count` messages are sampled, in order."""
        found: list[int] = []
        index = self._left
        while index < count:
            found.append(index)
            index += 1 + self._gap()
        self._left = index - count
        return found

    def _gap(self) -> int:
        """Return a number of messages that are not sampled."""
        if self._ratio >= 1:
            return 0
        if self._ratio <= 0:
            return _NEVER
        # 1 - random() is above 0, so that its logarithm exists.
        return int(math.log(1 - self._random.random()) / math.log1p(-self._ratio))
