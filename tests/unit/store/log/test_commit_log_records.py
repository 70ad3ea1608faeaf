"""Every kind of record in the log: IPv6 hosts, the second version, batches that are not split."""

import struct
from dataclasses import replace
from ipaddress import IPv6Address

import pytest

from ternmq_model.errors import MessageRefused, StoreFailed
from ternmq_model.message_batch import decode_records
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.record.checksum import verify_checksum
from ternmq_model.record.format import BLANK_BYTES, MAGIC_V2, encode_blank
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import BORN_HOST, STORE_HOST, batch_of, record, sizes_of
from tests.support.stores import (
    ROOT,
    SMALL,
    append,
    drain,
    log_bytes,
    open_store,
    settle,
    whole,
)

FILE_BYTES = SMALL.commit_log_file_bytes
V6_HOST = IPv6Address("fe80::1").packed + (40_000).to_bytes(4, "big")


def as_v2(data: bytes, *, body_bytes: int, physical_offset: int) -> bytes:
    """Return a V1 record with IPv4 hosts as RocketMQ writes it in its second version."""
    topic_at = 88 + body_bytes
    head = struct.pack(">ii", len(data) + 1, MAGIC_V2) + data[8:28]
    head += struct.pack(">q", physical_offset) + data[36:topic_at]
    return head + b"\0" + data[topic_at:]


def test_atomic_batch_moves_to_the_next_file_behind_a_blank() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    first = append(store, batch_of(record(body=b"x" * 5000)))
    batch = batch_of(*(record(body=b"y" * 900) for _ in range(5)))
    places = store.append(batch, born_host=BORN_HOST, store_host=STORE_HOST, atomic=True)
    assert places.physical_offsets.tolist() == (batch.starts + FILE_BYTES).tolist()
    blank = log_bytes(files, first.end, BLANK_BYTES, file_bytes=FILE_BYTES)
    assert blank == encode_blank(FILE_BYTES - first.end)
    settle(store)
    assert [offset for offset, _ in drain(store, "flights", 0)] == list(range(6))
    store.close()
    again = open_store(files)
    assert again.report.end == places.end
    assert len(drain(again, "flights", 0)) == 6
    again.close()


def test_atomic_batch_stays_where_it_fits_to_the_last_byte() -> None:
    store = open_store(MemoryFileSystem())
    fixed = len(record(body=b""))
    batch = batch_of(record(body=b""), record(body=b"x" * (FILE_BYTES - 8 - 2 * fixed)))
    places = store.append(batch, born_host=BORN_HOST, store_host=STORE_HOST, atomic=True)
    assert places.physical_offsets.tolist() == [0, fixed]
    assert store.max_physical == FILE_BYTES - 8
    store.close()


def test_atomic_batch_longer_than_a_file_is_refused() -> None:
    store = open_store(MemoryFileSystem())
    batch = batch_of(*(record(body=b"x" * 900) for _ in range(9)))
    with pytest.raises(MessageRefused, match=f"batch of {len(batch.data)} bytes"):
        store.append(batch, born_host=BORN_HOST, store_host=STORE_HOST, atomic=True)
    assert store.max_physical == 0
    assert append(store, batch).queue_offsets.tolist() == list(range(9))
    store.close()


@pytest.mark.parametrize("is_checksummed", [True, False])
def test_records_with_ipv6_hosts_are_stored_beside_the_others(is_checksummed: bool) -> None:
    files = MemoryFileSystem()
    config = replace(SMALL, record_checksum=is_checksummed)
    store = open_store(files, config=config)
    append(store, batch_of(record(body=b"4")))
    six = record(body=b"6", born_host=bytes(20), store_host=bytes(20))
    store.append(batch_of(six, six, host_bytes=20), born_host=V6_HOST, store_host=V6_HOST)
    append(store, batch_of(record(body=b"4")))
    settle(store)
    found = drain(store, "flights", 0)
    headers = [whole(data).header for _, data in found]
    assert [head.born_host for head in headers] == [BORN_HOST, V6_HOST, V6_HOST, BORN_HOST]
    assert [head.store_host for head in headers] == [STORE_HOST, V6_HOST, V6_HOST, STORE_HOST]
    if is_checksummed:
        assert all(verify_checksum(data, whole(data).properties) for _, data in found)
    records = [data for _, data in found]
    messages = decode_records(b"".join(records), sizes_of(records), MessageQueue("flights", "b", 0))
    assert [message.body for message in messages] == [b"4", b"6", b"6", b"4"]
    assert messages[1].born_host == "[fe80::1]:40000"
    assert len(messages[1].offset_message_id) == 56
    store.close()


@pytest.mark.parametrize("topic", ["flights", "%RETRY%" + "g" * 248])
def test_records_of_the_second_version_are_recovered_dispatched_and_read(topic: str) -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    places = append(store, batch_of(record("flights", body=b"first")))
    settle(store)
    # Another program's record, as a crash would leave it: in the log, in no queue.
    number = int(topic == "flights")
    data = as_v2(
        record(topic, body=b"second", properties={"TAGS": "x"}),
        body_bytes=6,
        physical_offset=places.end,
    )
    data = data[:20] + struct.pack(">q", number) + data[28:]
    log = files.nodes[commit_log_folder(ROOT) / file_name(0)].data
    log[places.end : places.end + len(data)] = list(data)
    files.locks.clear()
    again = open_store(files)
    assert again.report.end == places.end + len(data)
    assert again.next_offset(topic, 0) == QueueOffset(number + 1)
    append(again, batch_of(record("flights", body=b"third")))
    settle(again)
    records = [data for name in {topic, "flights"} for _, data in drain(again, name, 0)]
    messages = decode_records(b"".join(records), sizes_of(records), MessageQueue(topic, "b", 0))
    assert sorted(message.body for message in messages) == [b"first", b"second", b"third"]
    (second,) = (message for message in messages if message.body == b"second")
    assert second.properties == {"TAGS": "x"}
    again.close()


def test_topic_of_127_bytes_is_stored_and_read() -> None:
    store = open_store(MemoryFileSystem())
    topic = "T" * 127
    append(store, batch_of(record(topic)))
    settle(store)
    ((_, data),) = drain(store, topic, 0)
    assert whole(data).topic == topic.encode()
    store.close()


def test_append_that_cannot_write_makes_the_store_read_only() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    kept = append(store, batch_of(record(body=b"kept")))
    settle(store)
    files.happen = broken  # type: ignore[method-assign]
    with pytest.raises(StoreFailed, match="broken"):
        append(store, batch_of(record(body=b"lost")))
    assert (store.max_physical, store.confirm_offset) == (kept.end, kept.end)
    assert len(drain(store, "flights", 0)) == 1
    store.close()


def broken() -> None:
    """Fail as a disk does."""
    raise OSError("broken")
