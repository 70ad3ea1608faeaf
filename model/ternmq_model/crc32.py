"""CRC-32 by ISA-L, several times as fast as zlib's; by zlib where ISA-L is not installed."""

import zlib
from collections.abc import Callable

crc32: Callable[..., int] = zlib.crc32
try:
    from isal import isal_zlib
except ImportError:  # such as a platform without a wheel
    pass
else:
    crc32 = isal_zlib.crc32  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
