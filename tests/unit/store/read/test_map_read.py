"""The newest message of a queue, read in scalars as by the passes over many units."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset
from ternmq_model.properties import tag_code
from ternmq_store.config import StoreConfig
from ternmq_store.disk.layout import commit_log_folder, file_name, queue_folder
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadResult
from ternmq_store.queues.units import read_unit
from ternmq_store.read import store_reads
from ternmq_store.read.cold_read import ColdRead
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, append, open_store, settle

CONFIG = StoreConfig(
    commit_log_file_bytes=8192, consume_queue_file_units=10, record_checksum=False, index_slots=20
)
TAGS = st.sampled_from(["", "a", "b"])


def as_plain(plan: ReadResult | ColdRead) -> tuple[object, ...] | None:
    """Return all of a result that can be compared; None = the disk is asked."""
    if isinstance(plan, ColdRead):
        return None
    sizes = plan.record_sizes
    rest = replace(plan, pieces=(), record_sizes=sizes[:0])
    return plan.records, plan.record_bytes, sizes.tolist(), sizes.dtype, str(rest)


def no_record(*_: object, **__: object) -> None:
    """Leave every read to the passes."""


def both(store: MessageStore, request: ReadRequest) -> list[tuple[object, ...] | None]:
    """Read by the scalars where they apply, and by the passes alone."""
    found = [as_plain(store.reads.plan_read(request))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_reads, "newest_record", no_record)
        found.append(as_plain(store.reads.plan_read(request)))
    return found


@given(
    bodies=st.lists(st.tuples(st.integers(0, 3000), TAGS), min_size=1, max_size=12),
    wanted=st.one_of(st.none(), st.frozensets(TAGS.map(tag_code))),
    damaged=st.sampled_from(["", "size", "queue offset", "unit", "quarantine"]),
    bytes_max=st.integers(1, 4000),
    restarted=st.booleans(),
)
def test_newest_message_is_read_in_scalars_as_by_passes(
    bodies: list[tuple[int, str]],
    wanted: frozenset[int] | None,
    damaged: str,
    bytes_max: int,
    *,
    restarted: bool,
) -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    for size, tag in bodies:
        append(store, batch_of(record("A", 0, bytes(size), {"TAGS": tag} if tag else {})))
        settle(store)
    if restarted:
        store.close()
        store = open_store(files, config=CONFIG)
    number = QueueOffset(len(bodies) - 1)
    units = files.nodes[queue_folder(ROOT, "A", 0) / file_name(number // 10 * 200)].data
    unit_at = number % 10 * UNIT_BYTES
    place, size, _ = read_unit(units.data, unit_at)
    log_base = place - place % CONFIG.commit_log_file_bytes
    view = files.nodes[commit_log_folder(ROOT) / file_name(log_base)].data[place - log_base :]
    if damaged == "size":
        view[3] ^= 1
    elif damaged == "queue offset":
        view[27] ^= 1
    elif damaged == "unit":
        units[unit_at + 2] ^= 1
    elif damaged == "quarantine":
        store.reads.quarantine.add(place, PhysicalOffset(place + size), "for the test")
    for offset in (number, QueueOffset(max(number - 1, 0))):
        limits = ReadLimits(8, bytes_max)
        by_scalars, by_passes = both(
            store,
            ReadRequest(
                topic="A", queue_id=0, offset=offset, hot=limits, cold=limits, tag_codes=wanted
            ),
        )
        assert by_scalars == by_passes


def test_reader_that_keeps_up_is_served_in_scalars(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(MemoryFileSystem(), config=CONFIG)
    monkeypatch.setattr(store.reads, "_read_map", None)
    for number in range(30):
        append(store, batch_of(record("A", 0, b"%d" % number)))
        settle(store)
        assert len(store.read("A", 0, QueueOffset(number)).record_sizes) == 1
