"""A store that Apache RocketMQ wrote reads here as RocketMQ's own decoder reads it."""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from ternmq_model.message_id import offset_message_id
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import decode_properties
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.message_store import MessageStore
from tests.support.records import batch_of, record
from tests.support.rocketmq import Line, contents, manifest, unpack_store
from tests.support.stores import append, drain, open_store, settle, units_in, whole

LOG_FILE_BYTES: Final = 65_536


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a copy of the store."""
    return unpack_store(tmp_path)


def check_records(store: MessageStore, lines: Sequence[Line]) -> None:
    """Compare the store's records with the manifest's."""
    for line in lines:
        data = store.record_at(PhysicalOffset(line["physicalOffset"]))
        assert data is not None, line
        found = whole(data)
        header = found.header
        assert len(data) == line["size"]
        assert found.topic.decode() == line["topic"]
        assert header.queue_id == line["queueId"]
        assert header.queue_offset == line["queueOffset"]
        assert header.flag == line["flag"]
        assert header.sys_flag == line["sysFlag"]
        assert header.body_bytes == line["bodyLength"]
        assert header.body_crc == zlib.crc32(found.body) & 0x7FFFFFFF == line["bodyCrcOfStored"]
        assert header.born_at_ms == line["bornTimestamp"]
        assert header.stored_at_ms == line["storeTimestamp"]
        assert header.reconsume_times == line["reconsumeTimes"]
        assert header.prepared_offset == line["preparedTransactionOffset"]
        assert offset_message_id(header.store_host, header.physical_offset) == line["msgId"]
        assert decode_properties(found.properties) == line["properties"]


def check_units(root: Path, lines: Sequence[Line]) -> None:
    """Compare the consume queues' bytes with the manifest's units."""
    expected: dict[str, list[tuple[int, int, int]]] = {}
    for line in lines:
        units = expected.setdefault(f"{line['topic']}/{line['queueId']}", [])
        assert line["queueOffset"] == len(units)
        units.append((line["physicalOffset"], line["size"], line["tagsCode"]))
    found: dict[str, list[tuple[int, int, int]]] = {}
    for name, data in contents(root / "consumequeue").items():
        found.setdefault(str(Path(name).parent), []).extend(units_in(data))
    assert found == expected


def test_records_and_units_decode_as_rocketmq_decodes_them(root: Path) -> None:
    before = contents(root)
    store = open_store(RealFileSystem(), root=root)
    assert store.report.was_clean
    assert not store.report.queues_rebuilt
    assert store.report.cut_bytes == 0
    records, units = manifest(root, "record"), manifest(root, "unit")
    assert store.report.end == records[-1]["physicalOffset"] + records[-1]["size"]
    check_records(store, records)
    check_units(root, units)
    for topic, queue_id in store.queues():
        mine = [u for u in units if (u["topic"], u["queueId"]) == (topic, queue_id)]
        offsets = [offset for offset, _ in drain(store, topic, queue_id)]
        assert len(offsets) == len(mine)
        assert store.queue_range(topic, queue_id) == (0, len(mine))
    store.close()
    after = contents(root)
    for name in ("lock", "ternmq.store", "ternmq.store.bak", "ternmq.reserve"):
        del after[name]
    before["checkpoint"] = after["checkpoint"]
    assert after == before


def test_recovery_after_crash_keeps_every_byte_rocketmq_wrote(root: Path) -> None:
    before = contents(root)
    (root / "abort").touch()
    store = open_store(RealFileSystem(), root=root)
    assert not store.report.was_clean
    check_records(store, manifest(root, "record"))
    store.close()
    after = contents(root)
    assert all(after[name] == data for name, data in before.items() if name != "checkpoint")


def test_rebuilt_queues_equal_rocketmqs_byte_for_byte(root: Path) -> None:
    before = contents(root / "consumequeue")
    for path in sorted((root / "consumequeue").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    files = RealFileSystem()
    store = open_store(files, root=root)
    store.close()
    rebuilt = contents(root / "consumequeue")
    assert joined(rebuilt) == joined(before)


def joined(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return each queue's units: with no queue left, the length of files is our default."""
    queues: dict[str, bytes] = {}
    for name, data in files.items():
        folder = str(Path(name).parent)
        queues[folder] = queues.get(folder, b"") + data
    return {folder: data.rstrip(b"\0") for folder, data in queues.items()}


def test_appended_records_follow_in_files_of_existing_size(root: Path) -> None:
    store = open_store(RealFileSystem(), root=root)
    end = store.max_physical
    next_offset = store.next_offset("Orders", 3)
    places = append(store, batch_of(*(record("Orders", 3, b"x" * 9_000) for _ in range(12))))
    settle(store)
    assert places.physical_offsets[0] == end
    assert places.queue_offsets[0] == next_offset
    assert len(store.read("Orders", 3, QueueOffset(next_offset)).record_sizes) > 0
    assert len(drain(store, "Orders", 3)) == next_offset + 12
    store.close()
    lengths = {path.stat().st_size for path in (root / "commitlog").iterdir()}
    assert lengths == {LOG_FILE_BYTES}
    again = open_store(RealFileSystem(), root=root)
    assert again.report.was_clean
    assert len(drain(again, "Orders", 3)) == next_offset + 12
    again.close()
