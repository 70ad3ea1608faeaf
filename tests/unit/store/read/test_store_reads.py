import logging
from dataclasses import replace
from typing import Any

import pytest

from ternmq_model.errors import ConfigError
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import decode_properties
from ternmq_model.record.batch import check_records
from ternmq_model.record.fields import tag_code_of
from ternmq_store.config import StoreConfig
from ternmq_store.disk.layout import commit_log_folder, file_name, queue_ext_folder, queue_folder
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadResult, ReadStatus
from ternmq_store.queues.units import PADDING_SIZE, UNIT
from ternmq_store.read.cold_read import ColdRead
from ternmq_store.read.record_reader import ColdRecord
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import BORN_HOST, STORE_HOST, batch_of, record, sizes_of
from tests.support.stores import (
    ROOT,
    SMALL,
    append,
    delete,
    flush,
    open_store,
    settle,
    whole,
)

HOT = ReadLimits(32, 262_144)
COLD = ReadLimits(8, 65_536)
BIG = StoreConfig(
    commit_log_file_bytes=1 << 20, consume_queue_file_units=1000, index_slots=20, index_entries=40
)


def request(offset: int = 0, topic: str = "A", queue_id: int = 0) -> ReadRequest:
    return ReadRequest(
        topic=topic, queue_id=queue_id, offset=QueueOffset(offset), hot=HOT, cold=COLD
    )


def fill(store: MessageStore, count: int, topic: str = "A") -> None:
    for number in range(count):
        tag = {"UNIQ_KEY": f"{number:032x}", "TAGS": "odd" if number % 2 else "even"}
        append(store, batch_of(record(topic, 0, b"%d" % number, tag)))
    settle(store)


def restarted(
    count: int = 10, *, config: StoreConfig = BIG
) -> tuple[MessageStore, MemoryFileSystem]:
    """Return a store that was closed and opened again, with messages in queue 0 of topic A."""
    files = MemoryFileSystem()
    store = open_store(files, config=config)
    fill(store, count)
    store.close()
    return open_store(files, config=config), files


def cold(store: MessageStore, wanted: ReadRequest) -> ReadResult:
    """Read from the disk, which must be necessary."""
    plan = store.reads.plan_read(wanted)
    assert isinstance(plan, ColdRead)
    plan.run()
    return store.reads.finish(plan)


def hot(store: MessageStore, wanted: ReadRequest) -> ReadResult:
    """Read from memory, which must do."""
    plan = store.reads.plan_read(wanted)
    assert isinstance(plan, ReadResult)
    return plan


def bodies(result: ReadResult) -> list[bytes]:
    data, position = result.records, 0
    found: list[bytes] = []
    for size in result.record_sizes.tolist():
        found.append(whole(data[position : position + size]).body)
        position += size
    assert position == len(data) == result.record_bytes
    return found


def unmap(files: MemoryFileSystem) -> None:
    """Let maps and files part: what is read from a map from now on is nonsense."""
    for node in files.nodes.values():
        mapped = node.data
        node.data = mapped.copy()
        mapped[:] = 0xEE


def test_messages_appended_since_the_start_are_read_from_memory() -> None:
    store = open_store(MemoryFileSystem(), config=BIG)
    fill(store, 40)
    result = hot(store, request())
    assert len(bodies(result)) == 32
    assert (result.next_offset, result.min_offset, result.max_offset) == (32, 0, 40)
    assert all(isinstance(piece, memoryview) for piece in result.pieces)
    assert len(result.pieces) == 1


def test_messages_before_a_restart_are_first_read_from_disk() -> None:
    store, files = restarted(20)
    unmap(files)
    result = cold(store, request())
    assert bodies(result) == [b"%d" % number for number in range(8)]
    assert (result.next_offset, result.max_offset, result.scanned) == (8, 20, 8)


def test_messages_read_and_verified_are_in_memory_for_the_next_read() -> None:
    store, _ = restarted(20)
    assert len(bodies(cold(store, request()))) == 8
    result = hot(store, request(8))
    assert bodies(result) == [b"%d" % number for number in range(8, 20)]
    assert result.next_offset == 20
    assert store.statistics.gets_from_disk == 1


def test_messages_appended_after_a_restart_need_no_disk() -> None:
    store, _ = restarted(3)
    append(store, batch_of(record("A", 0, b"new")))
    settle(store)
    assert bodies(hot(store, request(3))) == [b"new"]
    assert isinstance(store.reads.plan_read(request(2)), ColdRead)


def test_messages_beyond_the_memory_limit_come_from_disk() -> None:
    store = open_store(MemoryFileSystem(), config=BIG)
    fill(store, 2000)
    fill(store, 5000, "B")
    size = len(bodies(hot(store, request())))
    assert size == 32
    store.reads.memory_bytes = 100_000
    result = cold(store, request())
    assert len(bodies(result)) == 8
    assert result.suggest_pull_from_slave
    assert result.behind_bytes > 40_000
    assert isinstance(store.reads.plan_read(request(8)), ColdRead)
    newest = hot(store, request(4999, "B"))
    assert not newest.suggest_pull_from_slave
    assert newest.behind_bytes < 1000


def test_newest_message_of_a_slow_queue_is_in_memory() -> None:
    store = open_store(MemoryFileSystem(), config=BIG)
    fill(store, 1, "slow")
    store.reads.memory_bytes = 2_000_000
    for _ in range(3):
        append(store, batch_of(*(record("A", 0, bytes(1000)) for _ in range(900))))
        settle(store)
    fill(store, 1, "slow")
    assert len(bodies(hot(store, request(1, "slow")))) == 1
    assert len(bodies(cold(store, request(0, "slow")))) == 1


def test_hot_and_cold_reads_agree_on_filters_and_offsets() -> None:
    store = open_store(MemoryFileSystem(), config=BIG)
    fill(store, 30)
    odd = frozenset({tag_code_of(b"TAGS\x01odd\x02")})

    def is_late(properties: bytes) -> bool:
        return int(decode_properties(properties)["UNIQ_KEY"], 16) >= 9

    def is_nothing(_properties: bytes) -> bool:
        return False

    for limits in (
        ReadLimits(3, 1 << 20),
        ReadLimits(100, 700),
        ReadLimits(1, 1),
        ReadLimits(100, 1 << 20),
    ):
        for tags in (None, odd, frozenset({12345})):
            for keep in (None, is_late, is_nothing):
                wanted = replace(
                    request(1), hot=limits, cold=limits, tag_codes=tags, record_filter=keep
                )
                store.reads.memory_bytes = 1 << 40
                expected = hot(store, wanted)
                store.reads.memory_bytes = 0
                found = cold(store, wanted)
                assert bodies(found) == bodies(expected)
                assert (found.status, found.next_offset) == (expected.status, expected.next_offset)
                assert found.scanned == expected.scanned
                assert bool(bodies(found)) is (found.status is ReadStatus.FOUND)


def test_damaged_record_is_skipped_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, files = restarted(6)
    log = files.nodes[commit_log_folder(ROOT) / file_name(0)].data
    start = int(cold(store, request(0)).record_sizes[:2].sum())
    store.close()
    log[start + 88] ^= 1
    store = open_store(files, config=BIG)
    with caplog.at_level(logging.ERROR):
        result = cold(store, request(1))
        assert bodies(result) == [b"1", b"3", b"4", b"5"]
        assert (result.next_offset, result.skipped, store.reads.bad_records) == (6, 1, 1)
        assert bodies(cold(store, request(2))) == [b"3", b"4", b"5"]
    assert sum("damaged record not served" in each.message for each in caplog.records) == 1
    assert [each.start for each in store.reads.quarantine.ranges] == [start]


def test_read_of_a_removed_log_file_goes_on_with_the_next() -> None:
    store, _ = restarted(100, config=replace(SMALL, consume_queue_file_units=1000))
    plan = store.reads.plan_read(request())
    assert isinstance(plan, ColdRead)
    delete(store, commit_log_folder(ROOT) / file_name(0))
    plan.run()
    result = store.reads.finish(plan)
    assert result.status is ReadStatus.MESSAGE_WAS_REMOVING
    assert 0 < result.next_offset <= 100
    other = store.reads.plan_read(request(60))
    assert isinstance(other, ColdRead)
    other.run()
    assert store.reads.finish(other).status is ReadStatus.FOUND


def test_read_of_a_removed_queue_file_goes_on_with_the_next() -> None:
    store, _ = restarted(25, config=SMALL)
    plan = store.reads.plan_read(request(3))
    assert isinstance(plan, ColdRead)
    delete(store, queue_folder(ROOT, "A", 0) / file_name(0))
    plan.run()
    result = store.reads.finish(plan)
    assert result.status is ReadStatus.OFFSET_FOUND_NULL
    assert result.next_offset == 10


def test_topic_may_be_deleted_and_recreated_during_a_read() -> None:
    store, _ = restarted(5)
    plan, other = store.reads.plan_read(request()), store.reads.plan_read(request())
    assert isinstance(plan, ColdRead)
    assert isinstance(other, ColdRead)
    store.delete_topic("A")
    plan.run()
    assert store.reads.finish(plan).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
    fill(store, 1)
    other.run()
    result = store.reads.finish(other)
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 0)
    assert len(bodies(hot(store, request()))) == 1


def test_files_are_held_while_read() -> None:
    store, _ = restarted(5)
    plan = store.reads.plan_read(request())
    assert isinstance(plan, ColdRead)
    (held,) = plan.held
    assert held.holds == 1
    plan.run()
    store.reads.finish(plan)
    assert held.holds == 0


def test_store_may_be_closed_during_a_read() -> None:
    store, _ = restarted(5)
    plan = store.reads.plan_read(request())
    assert isinstance(plan, ColdRead)
    store.close()
    plan.run()
    assert store.reads.finish(plan).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE


def test_single_record_is_read_from_disk_and_verified() -> None:
    store, files = restarted(3)
    size = hot_size(store)
    store.close()
    store = open_store(files, config=BIG)
    end = store.confirm_offset

    def fetch(offset: int) -> bytes | None:
        plan = store.reads.plan_record(PhysicalOffset(offset), end)
        assert isinstance(plan, ColdRecord)
        plan.run()
        store.reads.release(plan)
        return plan.record

    record_bytes = fetch(size)
    assert record_bytes is not None
    assert whole(record_bytes).body == b"1"
    assert fetch(size + 1) is None
    files.nodes[commit_log_folder(ROOT) / file_name(0)].data[size + 89] ^= 1
    assert fetch(size) is None
    assert store.reads.plan_record(end, end) is None
    append(store, batch_of(record("A", 0, b"new")))
    flush(store)
    new = store.reads.plan_record(end, store.confirm_offset)
    assert isinstance(new, bytes)
    assert whole(new).body == b"new"


def hot_size(store: MessageStore) -> int:
    """Return the length of the first record."""
    return int(store.read("A", 0, QueueOffset(0), messages_max=1).record_sizes[0])


def test_records_with_long_hosts_are_in_memory_for_the_next_read() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=BIG)
    long_host = bytes(range(16)) + (10_911).to_bytes(4, "big")
    hosts = (BORN_HOST, STORE_HOST), (long_host, long_host), (long_host, STORE_HOST)
    for number in range(30):
        born, at = hosts[number % 3]
        data = record("A", 0, b"%d" % number, born_host=born, store_host=at)
        checked = check_records(
            data,
            sizes_of([data]),
            born_host_bytes=len(born),
            store_host_bytes=len(at),
            is_checksummed=False,
        )
        assert checked.batch is not None
        store.append(checked.batch, born_host=born, store_host=at)
    settle(store)
    store.close()
    store = open_store(files, config=BIG)
    assert len(bodies(cold(store, request()))) == 8
    assert bodies(hot(store, request())) == [b"%d" % number for number in range(30)]


def test_single_read_steps_over_a_long_gap_in_a_queue() -> None:
    store, files = restarted(300)
    store.close()
    path = queue_folder(ROOT, "A", 0) / file_name(0)
    units = files.nodes[path].data[: 300 * 20].view(UNIT)
    units["offset"][10:290], units["size"][10:290], units["tag_code"][10:290] = 0, PADDING_SIZE, 0
    store = open_store(files, config=BIG)
    assert cold(store, request(10)).next_offset == 290
    assert len(bodies(cold(store, request(290)))) == 8
    again = hot(store, request(15))
    assert (again.status, again.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 290)


def test_tool_gets_no_damaged_record() -> None:
    store, files = restarted(3)
    size = hot_size(store)
    store.close()
    files.nodes[commit_log_folder(ROOT) / file_name(0)].data[size + 100] ^= 1
    store = open_store(files, config=BIG)
    result = store.read("A", 0, QueueOffset(0))
    assert bodies(result) == [b"0", b"2"]
    assert result.skipped == 1


def test_extended_consume_queue_entries_are_read_from_disk() -> None:
    config = replace(BIG, consume_queue_ext_enabled=True, consume_queue_ext_file_bytes=1 << 16)
    store, files = restarted(30, config=config)
    wanted = replace(request(), tag_codes=frozenset({tag_code_of(b"TAGS\x01odd\x02")}))
    unmap(files)
    result = cold(store, wanted)
    assert bodies(result) == [b"%d" % number for number in range(1, 17, 2)]
    store, _ = restarted(30, config=config)
    assert len(bodies(cold(store, wanted))) == 8
    assert len(bodies(hot(store, wanted))) == 15
    nobody = replace(request(20), tag_codes=frozenset({1}))
    assert hot(store, nobody).status is ReadStatus.NO_MATCHED_MESSAGE
    store, _ = restarted(30, config=config)
    delete(store, queue_ext_folder(ROOT, "A", 0) / file_name(0))
    assert len(bodies(cold(store, wanted))) == 8, "the consumer compares the tag itself"


def test_sparse_queue_is_read_record_by_record() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=BIG)
    for _ in range(4):
        fill(store, 1)
        append(store, batch_of(*(record("B", 0, bytes(1000)) for _ in range(60))))
        settle(store)
    store.close()
    store = open_store(files, config=BIG)
    assert len(bodies(cold(store, request()))) == 4
    assert isinstance(store.reads.plan_read(request(1)), ColdRead)


def test_read_ahead_hints_are_given_when_enabled() -> None:
    for enabled in (True, False):
        store, files = restarted(20, config=replace(BIG, read_ahead_enabled=enabled))
        cold(store, request())
        assert bool(files.hints) is enabled


@pytest.mark.parametrize(
    "setting",
    [
        {"read_memory_bytes_max": 0},
        {"read_disk_messages_max": 0},
        {"read_disk_bytes_max": (4 << 20) + 1},
        {"access_message_in_memory_max_ratio": 101},
    ],
)
def test_impossible_limits_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        StoreConfig(**setting)
