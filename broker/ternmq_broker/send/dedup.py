"""Search for stored records of retried batches, so that none is stored twice."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ternmq_broker.send.retried_batch import DuplicateRecord, RetriedRow, duplicate_of, retried_rows
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_model.errors import refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import RecordHeader
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.environment import Blocking
from ternmq_store.message_store import MessageStore
from ternmq_store.query.unique_key_search import UNIQUE_KEYS_MAX

_COMMIT_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class DuplicateSearch:
    """Search for records of retried batches in the store. Owns nothing.

    Nobody else may store the same records meanwhile: a producer's old stream is over before its
    next one opens, and a stream's batches are taken one after the other.
    """

    store: MessageStore
    blocking: Blocking
    confirmations: Confirmations

    async def find(self, records: bytes, sizes: NDArray[np.int32]) -> dict[int, DuplicateRecord]:
        """Return the stored records of a retried batch, by row.

        Everything appended counts: indexed or not, confirmed or not. Cancelling is safe.

        Raises:
            TernError: The store cannot tell. Nothing was stored.
        """
        left = await self.blocking.run(retried_rows, records, sizes)  # up to 0.1 s for 4 MiB
        end = await self._readable_end()
        found: dict[int, DuplicateRecord] = {}
        for topic in dict.fromkeys(topic for row in left for topic in row.topics):
            rows = [row for row in left if topic in row.topics and row.row not in found]
            for first in range(0, len(rows), UNIQUE_KEYS_MAX):
                part = rows[first : first + UNIQUE_KEYS_MAX]
                headers = await self._search(topic, part, end)
                for row in part:
                    header = headers.get(row.key)
                    if header is not None:
                        found[row.row] = duplicate_of(row, topic, header)
        return found

    async def _search(
        self, topic: str, rows: Sequence[RetriedRow], end: PhysicalOffset
    ) -> dict[str, RecordHeader]:
        keys = list(dict.fromkeys(row.key.encode() for row in rows))
        search = self.store.searches.unique(topic, keys, end=end)
        try:
            return await self.blocking.run(search.run)
        except OSError as error:
            remark = f"whether it is stored already cannot be told: {error}"
            raise refusal(ResponseCode.SYSTEM_ERROR, remark) from error

    async def _readable_end(self) -> PhysicalOffset:
        """Return the end of the log, once all before it can be read from its files."""
        end = self.store.max_physical
        if self.store.commits.offset < end:
            try:
                async with asyncio.timeout(_COMMIT_TIMEOUT_S):
                    await self.confirmations.wait(end)
            except TimeoutError:
                remark = "what was sent before is not written yet, and cannot be looked up"
                raise refusal(ResponseCode.SYSTEM_BUSY, remark) from None
        return end
