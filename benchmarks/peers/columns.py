"""Rows of Arrow columns for a benchmark beside other message queues.

The benchmark imports this module by its name, with its own package `adapters` beside it. A batch
of payloads is an Arrow array: only its length is read.
"""

import importlib
from collections.abc import AsyncIterator
from typing import Any, Final

_Async: Final[Any] = importlib.import_module("adapters.ours").Async
_Many: Final[Any] = importlib.import_module("adapters.ours").Many


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


VARIANTS = [PollColumns, PollBodies]
