"""Delays of deliveries, counted in little memory. Pure."""

from typing import Final

import numpy as np

from ternmq_model.arrays import Ints

_BITS_MAX: Final = 40


class DeliveryDelay:
    """Counts of deliveries by their delay, in powers of two of a millisecond, and the worst delay.

    Owned by the delivery job.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_BITS_MAX + 1, dtype=np.int64)
        self.worst_ms = 0

    def add(self, late_ms: Ints) -> None:
        """Count some deliveries; an early one counts as punctual."""
        if not len(late_ms):
            return
        late_ms = np.maximum(late_ms, 0)
        bits = np.ceil(np.log2(late_ms + 1)).astype(np.int64)
        self._counts += np.bincount(np.minimum(bits, _BITS_MAX), minlength=_BITS_MAX + 1)
        self.worst_ms = max(self.worst_ms, int(late_ms.max()))

    @property
    def count(self) -> int:
        """Number of deliveries."""
        return int(self._counts.sum())

    def at_most_ms(self, share: float) -> int:
        """Return a delay that `share` of the deliveries, from 0 to 1, did not exceed.

        The delay is rounded up to one less than a power of two, but never above the worst.
        """
        total = self.count
        if not total:
            return 0
        bits = int(np.searchsorted(np.cumsum(self._counts), share * total))
        return min((1 << bits) - 1, self.worst_ms)
