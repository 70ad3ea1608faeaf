"""The store's index: it follows the log by hint and by scan, and is made good when it is opened."""

import random
from dataclasses import replace

import pytest

from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.index.index_format import IndexHeader, decode_header
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem
from tests.support.index_queries import query
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, HandClock, append, checkpoint, open_store, settle

FOLDER = ROOT / "index"


def keyed(number: int, topic: str = "A") -> bytes:
    return record(
        topic, number % 2, properties={"UNIQ_KEY": f"u{number}", "KEYS": f"k{number} all"}
    )


def contents(files: MemoryFileSystem) -> list[bytes]:
    """Return the index files with entries, oldest first."""
    found = [files.nodes[FOLDER / name].data.tobytes() for name in files.files(FOLDER)]
    return [data for data in found if decode_header(data) != IndexHeader()]


def filled(files: MemoryFileSystem, count: int = 40, step: int = 7) -> None:
    """Fill a store with a few index files, and close it."""
    store = open_store(files)
    for first in range(0, count, step):
        append(store, batch_of(*(keyed(number) for number in range(first, first + step))))
        settle(store)
    store.close()


def test_rebuilt_index_has_the_bytes_dispatch_requests_gave_it() -> None:
    files = MemoryFileSystem()
    filled(files)
    expected = contents(files)
    assert len(expected) == 4
    for name in files.files(FOLDER)[2:]:
        files.remove(FOLDER / name)
    open_store(files).close()
    assert contents(files) == expected
    for name in files.files(FOLDER):
        files.remove(FOLDER / name)
    open_store(files).close()
    assert contents(files) == expected


def test_store_reopened_with_an_index_gets_a_complete_one() -> None:
    expected, files = MemoryFileSystem(), MemoryFileSystem()
    filled(expected)
    store = open_store(files, config=replace(SMALL, index_enabled=False))
    append(store, batch_of(*(keyed(number) for number in range(42))))
    store.close()
    assert not files.exists(FOLDER)
    open_store(files, clock=HandClock()).close()
    assert contents(files) == contents(expected)


@pytest.mark.parametrize("seed", range(20))
def test_index_after_power_loss_covers_exactly_the_log(
    seed: int,
) -> None:
    files, chance = PowerLossFileSystem(), random.Random(seed)
    store = open_store(files)
    for first in range(0, 42, 6):
        append(store, batch_of(*(keyed(number) for number in range(first, first + 6))))
        if chance.random() < 0.7:
            settle(store)
        if chance.random() < 0.4:
            checkpoint(store)
    again = open_store(files.lose_power(chance))
    end, index = again.max_physical, again._index  # pyright: ignore[reportPrivateUsage]
    assert index is not None
    assert index.indexed_to == end
    found = query(index, "A", "all", 0, 1 << 60, 64)
    assert len(found) == sum(again.queue_range("A", queue)[1] for queue in (0, 1))
    assert all(offset < end for offset in found)
    for number in range(len(found)):
        assert query(index, "A", f"k{number}", 0, 1 << 60, 64) == found[number : number + 1]
    again.close()


def test_index_built_anew_has_the_records_behind_damage() -> None:
    files = MemoryFileSystem()
    filled(files, 20, 5)
    store = open_store(files)
    index = store._index  # pyright: ignore[reportPrivateUsage]
    assert index is not None
    places = [query(index, "A", f"k{number}", 0, 1 << 60, 1)[0] for number in range(20)]
    store.close()
    log = files.nodes[commit_log_folder(ROOT) / file_name(0)].data
    log[places[4] : places[6] + 50] = 0
    for name in files.files(FOLDER):
        files.remove(FOLDER / name)
    again = open_store(files)
    index = again._index  # pyright: ignore[reportPrivateUsage]
    assert index is not None
    assert query(index, "A", "all", 0, 1 << 60, 64) == places[:4] + places[7:]
    again.close()
