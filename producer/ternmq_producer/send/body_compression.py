"""Compression of bodies that neither blocks the loop nor changes the order of messages."""

import sys
from collections.abc import Sequence
from typing import Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.compression import LEVEL_DEFAULTS, Format, compress
from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_producer.config import ProducerConfig
from ternmq_producer.queue_selection.selectors import QueueSelector, is_ordered
from ternmq_remoting.environment import Blocking

HERE_BYTES_MAX: Final = 64 << 10
"""Limit of bytes compressed on the loop; more takes 0.7 ms or longer and goes to the pool."""


def is_compressed_off_loop(
    message: Message, queue: MessageQueue | None, selector: QueueSelector | None
) -> bool:
    """Return whether a long body is compressed off the loop.

    Bodies of ordered messages are not, since the next message would overtake them.
    """
    return len(message.body) > HERE_BYTES_MAX and not is_ordered(message, queue, selector)


class BodyCompressor:
    """Compressor of bodies by the settings of a producer, which owns it.

    Attributes:
        from_bytes: Shortest body that is compressed; above every length without compression.
    """

    def __init__(self, config: ProducerConfig, blocking: Blocking) -> None:
        self._format: Format = config.compression or "zlib"
        level = config.compression_level
        self._level = LEVEL_DEFAULTS[self._format] if level is None else level
        self._blocking = blocking
        self.from_bytes = sys.maxsize if config.compression is None else config.compress_over_bytes

    def compress(self, body: bytes) -> tuple[bytes, int]:
        """Return `body`, compressed if that makes it shorter, and its compression bits."""
        return compress(body, self._format, self._level)

    async def compress_off_loop(self, body: bytes) -> tuple[bytes, int]:
        """Return the result of `compress`, off the loop. Cancelling is safe."""
        return await self._blocking.run(self.compress, body)

    async def compress_many(self, bodies: Sequence[bytes]) -> tuple[list[bytes], Ints]:
        """Return bodies, the long ones compressed, and the compression bits of each.

        Many bytes are compressed off the loop. Cancelling is safe.
        """
        if sum(map(len, bodies)) > HERE_BYTES_MAX:
            done = await self._blocking.run(self._compress_all, bodies)
        else:
            done = self._compress_all(bodies)
        return [body for body, _ in done], np.array([sys_flag for _, sys_flag in done])

    def _compress_all(self, bodies: Sequence[bytes]) -> list[tuple[bytes, int]]:
        return [
            self.compress(body) if len(body) >= self.from_bytes else (body, 0) for body in bodies
        ]
