"""Reads of the store for the broker's loop, in the blocking pool where they need the disk."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from ternmq_model.errors import refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import RecordHeader
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.environment import Blocking
from ternmq_store.message_store import MessageStore
from ternmq_store.query.unique_key_search import UNIQUE_KEYS_MAX
from ternmq_store.queues.read_request import ReadRequest, ReadResult, ReadStatus
from ternmq_store.read.cold_read import ColdRead
from ternmq_store.read.record_reader import ColdRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreReader:
    """Reads one store. Owns nothing."""

    store: MessageStore
    blocking: Blocking

    async def read(self, request: ReadRequest) -> ReadResult:
        """Return messages of a queue. A read from memory does not yield to other tasks.

        A read that must repair a damaged unit is repeated until the repair is complete. Cancelling
        is safe.

        Raises:
            RefusedError: The disk failed.
        """
        while isinstance(plan := self.store.reads.plan_read(request), ColdRead):
            result = await self.fetch(plan)
            has_moved = result.next_offset > request.offset
            if has_moved or result.status is not ReadStatus.NO_MATCHED_MESSAGE:
                return result
        return plan

    async def fetch(self, plan: ColdRead) -> ReadResult:
        """Run a read that `plan_read` returned. The queue may be deleted or recreated meanwhile.

        Raises:
            RefusedError: The disk failed.
        """
        reads = self.store.reads
        try:
            await self.run(plan.run)
        except BaseException:
            reads.release(plan)
            raise
        return reads.finish(plan)

    async def record(self, offset: PhysicalOffset, *, is_checked: bool = True) -> bytes | None:
        """Return the confirmed record that begins at `offset`; None without one.

        Args:
            offset: Log offset of the record.
            is_checked: False to skip the checks: then the bytes may be no record at all.

        Raises:
            RefusedError: The disk failed.
        """
        reads = self.store.reads
        plan = reads.plan_record(offset, self.store.confirm_offset, is_checked=is_checked)
        if not isinstance(plan, ColdRecord):
            return plan
        try:
            await self.run(plan.run)
        finally:
            reads.release(plan)
        return plan.record

    async def find_unique(
        self, topic: str, keys: Iterable[str], *, end: PhysicalOffset
    ) -> dict[str, RecordHeader]:
        """Return the headers of records of a topic before `end` in the log, by their unique keys.

        Raises:
            RefusedError: The disk failed.
        """
        encoded = [key.encode() for key in dict.fromkeys(keys)]
        found: dict[str, RecordHeader] = {}
        for first in range(0, len(encoded), UNIQUE_KEYS_MAX):
            some = encoded[first : first + UNIQUE_KEYS_MAX]
            search = self.store.searches.unique(topic, some, end=end)
            found |= await self.run(search.run)
        return found

    async def run(self, function: Callable[[], T]) -> T:
        """Return the result of a function that reads the disk, run in the blocking pool.

        Raises:
            RefusedError: The disk failed.
        """
        try:
            return await self.blocking.run(function)
        except OSError as error:
            remark = f"the disk cannot be read: {error}"
            raise refusal(ResponseCode.SYSTEM_ERROR, remark) from error
