"""Rows of columns for a benchmark beside other message queues: sends, and Arrow batches read.

The benchmark imports this module by its name, with its own package `adapters` beside it. A batch
of payloads is an Arrow array: only its length is read.
"""

import importlib
from collections.abc import AsyncIterator
from typing import Any, Final

import numpy as np

_Async: Final[Any] = importlib.import_module("adapters.ours").Async
_Many: Final[Any] = importlib.import_module("adapters.ours").Many


class SendColumns(_Async):  # type: ignore[misc]
    """Sends of many bodies in one buffer, as of a program that reads files or sockets."""

    row, workloads = "TernMQ / send_columns, async flush", "A"
    batch = 20_000

    async def produce_pipelined(self, n: int, size: int) -> None:
        """Send `n` messages, `batch` a call."""
        for start in range(0, n, self.batch):
            count = min(self.batch, n - start)
            bodies = (bytes(count * size), np.arange(0, count * size + 1, size))
            assert len(await self.producer.send_columns(self.topic, bodies)) == count


class SendColumnsSync(SendColumns):
    """Sends of columns with synchronous flush."""

    row, flush_mode = "TernMQ / send_columns, sync flush (default)", "sync"


class PollColumns(_Async):  # type: ignore[misc]
    """Catch-up with every column of the Spark source."""

    row, workloads = "TernMQ / poll_columns, async flush", "C"
    columns: tuple[str, ...] = ()
    produce_pipelined = _Many.produce_pipelined
    batch = _Many.batch

    async def batches(self) -> AsyncIterator[Any]:
        """Yield the bodies of each batch."""
        while True:
            yield (await self.consumer.poll_columns(columns=self.columns)).column("body")


class PollBodies(PollColumns):
    """Catch-up with the bodies and offsets alone."""

    row = "TernMQ / poll_columns of bodies and offsets, async flush"
    columns = ("queueId", "queueOffset", "body")


VARIANTS = [SendColumns, SendColumnsSync, PollColumns, PollBodies]
