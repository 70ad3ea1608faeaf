"""The checksum that the log puts into every record: after everything else, wherever it lies."""

from dataclasses import replace

import pytest

from ternmq_model.errors import IllegalMessage
from ternmq_model.message_batch import decode_records
from ternmq_model.queue import MessageQueue
from ternmq_model.record.checksum import RESERVED_CHECKSUM, has_checksum, verify_checksum
from ternmq_model.record.format import PROPERTIES_BYTES_MAX
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record, sizes_of
from tests.support.stores import SMALL, append, drain, open_store, settle, whole

CHECKSUMMED = replace(SMALL, record_checksum=True)


def test_every_record_carries_its_checksum_across_files_and_restarts() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=CHECKSUMMED)
    for number in range(3):
        bodies = [bytes((number,)) * 900 for _ in range(4)]
        batch = batch_of(
            *(record(body=body, suffix=RESERVED_CHECKSUM) for body in bodies), is_checksummed=True
        )
        append(store, batch)
        append(
            store, batch_of(record(body=b"alone", suffix=RESERVED_CHECKSUM), is_checksummed=True)
        )
    settle(store)
    before = drain(store, "flights", 0)
    assert len(before) == 15
    for _, data in before:
        assert verify_checksum(data, whole(data).properties)
    store.close()
    again = open_store(files, config=CHECKSUMMED)
    assert drain(again, "flights", 0) == before
    again.close()


@pytest.mark.parametrize("is_checksummed", [True, False])
def test_records_are_stored_as_configured_however_they_arrive(is_checksummed: bool) -> None:
    store = open_store(MemoryFileSystem(), config=replace(SMALL, record_checksum=is_checksummed))
    append(store, batch_of(record(), record()))
    append(store, batch_of(record(suffix=RESERVED_CHECKSUM), is_checksummed=True))
    settle(store)
    found = [whole(data) for _, data in drain(store, "flights", 0)]
    assert [has_checksum(each.properties) for each in found] == [is_checksummed] * 3
    store.close()


def test_record_without_space_for_its_checksum_is_refused() -> None:
    store = open_store(MemoryFileSystem(), config=replace(CHECKSUMMED, commit_log_file_bytes=65536))
    batch = batch_of(record(properties={"k": "v" * (PROPERTIES_BYTES_MAX - 3)}))
    with pytest.raises(IllegalMessage, match="checksum"):
        append(store, batch)
    assert store.max_physical == 0
    store.close()


def test_consumers_do_not_see_the_checksum() -> None:
    store = open_store(MemoryFileSystem(), config=CHECKSUMMED)
    append(store, batch_of(record(properties={"TAGS": "x"})))
    settle(store)
    ((_, data),) = drain(store, "flights", 0)
    (message,) = decode_records(data, sizes_of([data]), MessageQueue("flights", "b", 0))
    assert message.properties == {"TAGS": "x"}
    store.close()
