"""Reading batches of records as messages."""

import pytest

from ternmq_model.errors import CorruptRecord
from ternmq_model.message_batch import decode_records
from ternmq_model.queue import MessageQueue
from tests.support.records import BORN_HOST, record, sizes_of

QUEUE = MessageQueue("flights", "a", 0)


def test_records_of_several_layouts_are_read() -> None:
    records = [record(body=b"4"), record(body=b"6", born_host=bytes(16) + BORN_HOST[4:])]
    messages = decode_records(b"".join(records), sizes_of(records), QUEUE)
    assert [message.body for message in messages] == [b"4", b"6"]


def test_empty_buffer_has_no_records() -> None:
    assert decode_records(b"", sizes_of([]), QUEUE) == []


def test_flipped_bit_in_a_body_is_noticed_unless_verification_is_off() -> None:
    records = [record(body=b"first"), record(body=b"second")]
    data = b"".join(records).replace(b"second", b"secood")
    with pytest.raises(CorruptRecord, match="checksum"):
        decode_records(data, sizes_of(records), QUEUE)
    assert len(decode_records(data, sizes_of(records), QUEUE, check_crc=False)) == 2


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_inconsistent_sizes_are_refused(cut: int) -> None:
    data = record()
    with pytest.raises(CorruptRecord):
        decode_records(data[:-cut], sizes_of([data]), QUEUE)
    with pytest.raises(CorruptRecord):
        decode_records(data[:-cut], sizes_of([data[:-cut]]), QUEUE)
