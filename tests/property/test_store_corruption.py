"""Whatever happens to a store's files, nothing damaged is served, and the rest is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ternmq_model.errors import StoreError
from ternmq_store.disk.layout import (
    abort_path,
    checkpoint_path,
    commit_log_folder,
    consume_queue_folder,
    file_name,
    notes_path,
)
from ternmq_store.message_store import MessageStore
from ternmq_store.opened_files import RecoveryAction
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.damage import CONFIG, Key, check_index, copied, ends, filled, readable
from tests.support.examples import points
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, append, open_store, settle, whole

FILE_BYTES = CONFIG.commit_log_file_bytes
STORES = {is_clean: filled(is_clean=is_clean) for is_clean in (True, False)}
WHOLE = {is_clean: open_store(copied(files), config=CONFIG) for is_clean, files in STORES.items()}
SERVED = readable(WHOLE[True])
ENDS = ends(WHOLE[True])
LOG_END = WHOLE[True].max_physical
"""Where the log ends; both stores were filled alike."""

both_stops = pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])


def log_path(base: int) -> Path:
    return commit_log_folder(ROOT) / file_name(base)


def places() -> list[tuple[Key, int, int]]:
    """Return every message with where it lies and how long it is, in the order of the log."""
    rows = [(key, whole(data).header.physical_offset, len(data)) for key, data in SERVED.items()]
    return sorted(rows, key=lambda row: row[1])


def check_usable(files: MemoryFileSystem, store: MessageStore) -> None:
    """Store another message in each queue, stop and start; nothing that is served goes away."""
    before = readable(store)
    for topic, queue_id in store.queues():
        append(store, batch_of(record(topic, queue_id, b"new")))
    settle(store)
    after = readable(store)
    assert len(after) == len(before) + len(store.queues())
    assert before.items() <= after.items()
    store.close()
    again = open_store(files, config=CONFIG)
    assert again.report.was_clean
    assert readable(again) == after
    check_index(again, after)


def test_stores_with_and_without_checksums_serve_the_same() -> None:
    assert len(SERVED) == 60
    assert readable(WHOLE[False]) == SERVED
    assert not WHOLE[True].report.findings
    assert not WHOLE[False].report.findings


@both_stops
@pytest.mark.parametrize("number", [31, 59])
def test_record_with_any_flipped_byte_is_not_served_and_all_others_are(
    number: int, is_clean: bool
) -> None:
    key, start, size = places()[number]
    for byte in points(range(size)):
        files = copied(STORES[is_clean])
        base = start - start % FILE_BYTES
        files.nodes[log_path(base)].data[start - base + byte] ^= 1 << byte % 8
        store = open_store(files, config=CONFIG)
        found = readable(store)
        assert found == {other: data for other, data in SERVED.items() if other != key}, byte
        assert ends(store) == ENDS, byte
        if byte % 16 == 0:
            check_usable(files, store)


@both_stops
def test_blank_record_with_any_flipped_byte_hides_no_message(is_clean: bool) -> None:
    last = max(start + size for _, start, size in places() if start < FILE_BYTES)
    for byte in points(range(8)):
        files = copied(STORES[is_clean])
        files.nodes[log_path(0)].data[last + byte] ^= 0x40
        store = open_store(files, config=CONFIG)
        assert readable(store) == SERVED
        check_usable(files, store)


@both_stops
def test_log_cut_within_its_last_records_serves_those_before(is_clean: bool) -> None:
    last = LOG_END - LOG_END % FILE_BYTES
    first = places()[-2][1]
    for end in points(range(max(first, last), LOG_END)):
        files = copied(STORES[is_clean])
        node = files.nodes[log_path(last)]
        node.data = node.data[: end - last].copy()
        store = open_store(files, config=CONFIG)
        kept = {key for key, start, size in places() if start + size <= end}
        assert readable(store) == {key: SERVED[key] for key in kept}, end
        assert ends(store) == ENDS, end
        assert any(one.file == log_path(last) for one in store.report.findings)
        if end % 16 == 0:
            check_usable(files, store)


@both_stops
def test_queue_cut_at_any_byte_is_completed(is_clean: bool) -> None:
    path = consume_queue_folder(ROOT) / "A" / "0" / file_name(0)
    right = STORES[is_clean].nodes[path].data
    for end in points(range(len(right))):
        files = copied(STORES[is_clean])
        files.nodes[path].data = right[:end].copy()
        store = open_store(files, config=CONFIG)
        assert readable(store) == SERVED, end
        assert ends(store) == ENDS
        assert files.nodes[path].data.tobytes() == right.tobytes()


@both_stops
def test_queue_with_a_flipped_byte_in_its_first_or_last_unit_is_repaired(
    is_clean: bool,
) -> None:
    path = consume_queue_folder(ROOT) / "A" / "0" / file_name(0)
    for byte in points(
        (*range(12), *range(180, 192))
    ):  # the tag code is checked by who reads the message
        files = copied(STORES[is_clean])
        files.nodes[path].data[byte] ^= 4
        store = open_store(files, config=CONFIG)
        assert readable(store) == SERVED, byte
        assert ends(store) == ENDS


def _remove(files: MemoryFileSystem, path: Path) -> None:
    del files.nodes[path]


def _empty(files: MemoryFileSystem, path: Path) -> None:
    files.nodes[path].data = files.nodes[path].data[:0].copy()


def _fill(files: MemoryFileSystem, path: Path) -> None:
    files.nodes[path].data[:] = 0xA5


def _zero(files: MemoryFileSystem, path: Path) -> None:
    files.nodes[path].data[:] = 0


HARMS: list[Callable[[MemoryFileSystem, Path], None]] = [_remove, _empty, _fill, _zero]
all_harms = pytest.mark.parametrize("harm", HARMS)


@both_stops
@all_harms
def test_every_file_but_the_log_can_be_lost_without_losing_a_message(
    harm: Callable[[MemoryFileSystem, Path], None], is_clean: bool
) -> None:
    folder = commit_log_folder(ROOT)
    for path in points([path for path in STORES[is_clean].nodes if path.parent != folder]):
        files = copied(STORES[is_clean])
        harm(files, path)
        store = open_store(files, config=CONFIG)
        assert readable(store) == SERVED, path
        assert ends(store) == ENDS, path
        check_usable(files, store)


@both_stops
@all_harms
def test_lost_log_file_is_named_and_the_rest_is_served(
    harm: Callable[[MemoryFileSystem, Path], None], is_clean: bool
) -> None:
    for base in range(0, LOG_END, FILE_BYTES):
        files = copied(STORES[is_clean])
        harm(files, log_path(base))
        left = {
            key: SERVED[key] for key, start, _ in places() if not base <= start < base + FILE_BYTES
        }
        store = open_store(files, config=CONFIG)
        assert readable(store) == left
        assert ends(store) == ENDS
        check_usable(files, store)
        if is_clean or harm is not _remove or base:
            assert any(file_name(base) in str(one.file) for one in store.report.findings)


@both_stops
def test_swapped_log_files_are_refused_by_name(is_clean: bool) -> None:
    files = copied(STORES[is_clean])
    one, two = log_path(0), log_path(FILE_BYTES)
    files.nodes[one], files.nodes[two] = files.nodes[two], files.nodes[one]
    before = {path: node.data.tobytes() for path, node in files.nodes.items()}
    with pytest.raises(StoreError, match=f"{file_name(0)} contains the records of"):
        open_store(files, config=CONFIG)
    assert {path: node.data.tobytes() for path, node in files.nodes.items()} == before


@both_stops
def test_swapped_queues_are_rebuilt(is_clean: bool) -> None:
    folder = consume_queue_folder(ROOT)
    for other in (folder / "A" / "1", folder / "B" / "0"):
        files = copied(STORES[is_clean])
        one, two = folder / "A" / "0" / file_name(0), other / file_name(0)
        files.nodes[one], files.nodes[two] = files.nodes[two], files.nodes[one]
        store = open_store(files, config=CONFIG)
        assert readable(store) == SERVED
        assert store.report.queues_rebuilt
        assert any(one.what is RecoveryAction.REBUILT for one in store.report.findings)


@both_stops
def test_checkpoint_with_any_flipped_byte_loses_nothing(is_clean: bool) -> None:
    for byte in points(range(40)):
        for bit in range(8):
            files = copied(STORES[is_clean])
            files.nodes[checkpoint_path(ROOT)].data[byte] ^= 1 << bit
            store = open_store(files, config=CONFIG)
            assert readable(store) == SERVED, (byte, bit)
            assert ends(store) == ENDS


def test_side_files_of_other_states_lose_nothing() -> None:
    for wanted in (abort_path(ROOT), checkpoint_path(ROOT), notes_path(ROOT)):
        for is_clean in (True, False):
            files = copied(STORES[is_clean])
            node = copied(STORES[not is_clean]).nodes.get(wanted)
            if node is None:
                files.nodes.pop(wanted, None)
            else:
                files.nodes[wanted] = node
            store = open_store(files, config=CONFIG)
            assert readable(store) == SERVED, (wanted, is_clean)
            assert ends(store) == ENDS
            check_usable(files, store)
