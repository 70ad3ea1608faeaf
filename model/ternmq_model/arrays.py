"""Types of numpy arrays, and their bytes in a file. Pure."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


def layout_bytes(items: "NDArray[Any]", layout: "np.dtype[Any]") -> Bytes:
    """Return the bytes of items as `layout` has them in a file, one item after the other.

    The byte order of an array is a property of how it came about: numpy's `concatenate` and `where`
    return numbers in the machine's own. So it is given here, where an array becomes bytes.
    """
    return np.ascontiguousarray(items, dtype=layout).view(np.uint8)
