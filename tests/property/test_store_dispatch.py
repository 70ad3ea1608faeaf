"""The two roads of the dispatcher give the same bytes."""

import random
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq_store import dispatcher
from ternmq_store.config import FlushMode
from tests.support.files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import append, drain, flush, open_store, queue_files


def fill(seed: int, *, hinted_max: int, flush_mode: FlushMode) -> MemoryFileSystem:
    """Append and dispatch by chance; keep hints of `hinted_max` records at a time."""
    with mock.patch.object(dispatcher, "HINTED_RECORDS_MAX", hinted_max):
        return _fill(random.Random(seed), flush_mode)


def _fill(chance: random.Random, flush_mode: FlushMode) -> MemoryFileSystem:
    files = MemoryFileSystem()
    store = open_store(files, flush_mode=flush_mode)
    for _ in range(chance.randrange(1, 30)):
        records = [
            record(
                chance.choice(("A", "B-longer-name", "SCHEDULE_TOPIC_XXXX")),
                chance.randrange(3),
                chance.randbytes(chance.randrange(400)),
                {"TAGS": chance.choice(("x", "é", "订单"))} if chance.random() < 0.8 else {},
            )
            for _ in range(chance.randrange(1, 30))
        ]
        append(store, batch_of(*records))
        if chance.random() < 0.5:
            flush(store)
        store.dispatch(messages_max=chance.choice((1, 10, 1000)))
    flush(store)
    while store.dispatched_offset < store.max_physical:
        store.dispatch()
    for topic, queue_id in store.queues():
        offsets = [offset for offset, _ in drain(store, topic, queue_id)]
        assert offsets == list(range(store.next_offset(topic, queue_id)))
    store.close()
    return files


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), flush_mode=st.sampled_from(FlushMode))
def test_hints_and_scans_build_the_same_queues(seed: int, flush_mode: FlushMode) -> None:
    by_hint = queue_files(fill(seed, hinted_max=1 << 20, flush_mode=flush_mode))
    assert by_hint == queue_files(fill(seed, hinted_max=0, flush_mode=flush_mode))
    assert by_hint == queue_files(fill(seed, hinted_max=20, flush_mode=flush_mode))
