"""Unique keys are found whether the index has them yet or not."""

from unittest import mock

import pytest

from ternmq_store.dispatch import log_dispatcher
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import SMALL, append, open_store, prepare, settle


def keyed(number: int, topic: str = "A") -> bytes:
    return record(topic, 0, b"x" * 300, {"UNIQ_KEY": f"u{number}", "KEYS": f"u{number + 1000}"})


def look(store: MessageStore, *numbers: int, topic: str = "A") -> dict[str, int]:
    """Return the physical offsets of what is found."""
    keys = [f"u{number}".encode() for number in numbers]
    found = store.searches.unique(topic, keys, end=store.max_physical).run()
    return {key: header.physical_offset for key, header in found.items()}


@pytest.mark.parametrize("requested_max", [0, 20, 1 << 20])
def test_unique_keys_are_found_before_and_after_indexing(requested_max: int) -> None:
    with mock.patch.object(log_dispatcher, "REQUESTED_RECORDS_MAX", requested_max):
        store = open_store(MemoryFileSystem())
        offsets: list[int] = []
        for first in range(0, 60, 3):
            done = append(store, batch_of(*(keyed(first + row) for row in range(3))))
            offsets += done.physical_offsets.tolist()
            prepare(store)
            if first == 27:
                settle(store)
        assert 0 < store.dispatched_offset < store.max_physical
        expected = {f"u{number}": offsets[number] for number in (0, 10, 29, 30, 45, 59)}
        assert look(store, 0, 10, 29, 30, 45, 59, 77) == expected
        assert look(store, 1003) == {}  # a key, and no unique one
        assert look(store, 3, topic="B") == {}
        again = append(store, batch_of(keyed(3), keyed(45)))
        assert look(store, 3, 45) == {
            f"u{number}": offset
            for number, offset in zip((3, 45), again.physical_offsets.tolist(), strict=True)
        }
        settle(store)
        store.delete_topic("A")
        assert look(store, 3, 45) == {}
        store.close()
    assert SMALL.index_enabled
