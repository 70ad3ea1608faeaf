"""Reads of half messages, for their ends and for questions about them."""

from dataclasses import dataclass

from ternmq_broker.storage.ack_policy import AckPolicy
from ternmq_broker.storage.internal_record import InternalRecord, internal_record_of
from ternmq_broker.storage.reader import StoreReader
from ternmq_broker.transactions.half_codec import HalfRecord, read_half
from ternmq_model.errors import CorruptRecord
from ternmq_model.names import HALF_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import decode_properties
from ternmq_model.record.format import Record, decode_record


@dataclass(frozen=True, slots=True)
class HalfReader:
    """Reader of the half messages of one store. Owns nothing."""

    reader: StoreReader
    ack_policy: AckPolicy

    def is_confirmed(self, offset: PhysicalOffset) -> bool:
        """Return whether the record that begins at an offset of the log is confirmed."""
        return self.ack_policy.confirmations.reached(PhysicalOffset(offset + 1))

    async def confirmed(self, end: PhysicalOffset) -> None:
        """Wait until the log is confirmed up to `end`.

        Raises:
            TernError: See `AckPolicy.wait`.
        """
        if not self.ack_policy.confirmations.reached(end):
            await self.ack_policy.wait(end)

    async def read(self, offset: PhysicalOffset) -> tuple[HalfRecord, InternalRecord] | None:
        """Return the half message at an offset of the log; None when there is none, or a bad one.

        Raises:
            RefusedError: The disk failed.
        """
        data = await self.reader.record(offset)
        if data is None:
            return None
        try:
            record = decode_record(data)
        except CorruptRecord:
            return None
        if record is None:
            return None
        properties = decode_properties(record.properties)
        half = read_half(record, place_of=self._offset_of, properties=properties)
        return None if half is None else (half, internal_record_of(record, properties))

    def half_of(self, record: Record) -> HalfRecord | None:
        """Return the content of a half message's record; None for a record of another kind."""
        return read_half(record, place_of=self._offset_of)

    def _offset_of(self, number: QueueOffset) -> PhysicalOffset | None:
        return self.reader.store.searches.place_of(HALF_TOPIC, 0, number)
