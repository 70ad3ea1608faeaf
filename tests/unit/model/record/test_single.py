"""One record, read and completed in scalars."""

from ternmq_model.properties import tag_code
from ternmq_model.record.checksum import RESERVED_CHECKSUM, verify_checksum
from ternmq_model.record.format import decode_record
from ternmq_model.record.single import read_single
from tests.support.records import BORN_HOST, STORE_HOST, record


def test_single_record_is_completed_for_the_log() -> None:
    single = read_single(record(body=b"one", suffix=RESERVED_CHECKSUM), 0, is_checksummed=True)
    assert single is not None
    target = bytearray(single.data)

    single.complete(
        memoryview(target),
        queue_offsets=single.starts + 7,
        physical_offsets=single.starts + 1000,
        stored_at_ms=42,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
    )

    done = decode_record(bytes(target))
    assert done is not None
    header = done.header
    assert (header.queue_offset, header.physical_offset) == (7, 1000)
    assert (header.stored_at_ms, header.born_host, header.store_host) == (42, BORN_HOST, STORE_HOST)
    assert verify_checksum(bytes(target), done.properties)


def test_record_that_changes_is_left_to_the_batch() -> None:
    assert read_single(record(), 0, is_checksummed=True) is None
    assert read_single(record(suffix=RESERVED_CHECKSUM), 0, is_checksummed=False) is None
    assert read_single(record(properties={"DELAY": "3"}), 0, is_checksummed=False) is None
    assert read_single(record("SCHEDULE_TOPIC_XXXX"), 0, is_checksummed=False) is None
    tagged = read_single(record(properties={"TAGS": "a"}), 0, is_checksummed=False)
    assert tagged is not None
    assert tagged.tag_code == tag_code("a")
