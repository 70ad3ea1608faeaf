"""The two roads of the dispatcher give the same bytes."""

import random
from collections.abc import Sequence
from dataclasses import replace
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq_model.names import SCHEDULE_TOPIC, WHEEL_TOPIC
from ternmq_model.record.batch import RecordBatch, check_records
from ternmq_model.record.format import FLAG_COMMIT, FLAG_PREPARED, FLAG_ROLLBACK
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.dispatch import log_dispatcher
from ternmq_store.message_store import MessageStore
from ternmq_store.recovery import log_recovery
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.examples import examples
from tests.support.records import BORN_HOST, STORE_HOST, record, sizes_of
from tests.support.stores import ROOT, SMALL, drain, flush, open_store, prepare

HOST_V6 = bytes(range(16)) + (40_000).to_bytes(4, "big")
KINDS = (0, 0, 0, 0, FLAG_PREPARED, FLAG_COMMIT, FLAG_ROLLBACK)


def built(files: MemoryFileSystem) -> dict[str, bytes]:
    """Return the content of every file that is built from the log, by its path below the root."""
    return {
        str(path.relative_to(ROOT)): node.data.tobytes()
        for path, node in files.nodes.items()
        if path.parts[2] in ("consumequeue", "consumequeue_ext", "index")
    }


def batch(chance: random.Random, born_host: bytes, store_host: bytes) -> RecordBatch:
    """Return a batch as the broker would append it: its own kinds of records among them."""
    records = [
        record(
            chance.choice(("A", "B-longer-name", SCHEDULE_TOPIC, WHEEL_TOPIC)),
            chance.randrange(3),
            chance.randbytes(chance.randrange(400)),
            properties(chance),
            born_host=born_host,
            store_host=store_host,
        )
        for _ in range(chance.randrange(1, 30))
    ]
    checked = check_records(
        b"".join(records),
        sizes_of(records),
        born_host_bytes=len(born_host),
        store_host_bytes=len(store_host),
    )
    found = checked.batch
    assert found is not None, checked.refused
    for row in range(len(found)):
        found.headers["sys_flag"][row] |= chance.choice(KINDS)
    # No client may say when it is due; what the broker stores in its stead does.
    data = found.data.replace(b"delay\x01", b"DELAY\x01")
    return replace(found, data=data.replace(b"timer_out_ms\x01", b"TIMER_OUT_MS\x01"))


def properties(chance: random.Random) -> dict[str, str]:
    """Return what a message may carry."""
    some = {
        "UNIQ_KEY": f"{chance.getrandbits(128):032X}",
        "KEYS": chance.choice(("k", "one two", "schlüssel 钥匙 k", " x ")),
        "delay": str(chance.choice((1, 3, 18, 99, 0))),
        "timer_out_ms": str(chance.choice((1_800_000_000_000, 1_800_000_000_130, 5, 1 << 60))),
        "TIMER_DELIVER_MS": str(chance.choice((1_800_000_000_500, 7))),
        "TIMER_DEL_UNIQKEY": "k",
        "TAGS": chance.choice(("x", "é", "订单")),
    }
    return {name: value for name, value in some.items() if chance.random() < 0.8}


def bit_maps(batch: RecordBatch) -> Sequence[bytes]:
    """Return some bit maps; which ones depends on nothing but the records."""
    return [bytes([5]) * (int(born_at) % 3) for born_at in batch.sizes]


def fill(
    seed: int, *, requested_max: int, flush_mode: FlushMode, config: StoreConfig
) -> MemoryFileSystem:
    """Append and dispatch by chance; keep requests of `requested_max` records at a time."""
    with (
        mock.patch.object(log_dispatcher, "REQUESTED_RECORDS_MAX", requested_max),
        mock.patch.object(log_recovery, "no_bit_maps", bit_maps),
    ):
        return _fill(random.Random(seed), flush_mode, config)


def _fill(chance: random.Random, flush_mode: FlushMode, config: StoreConfig) -> MemoryFileSystem:
    files = MemoryFileSystem()
    store = open_store(files, config=config, flush_mode=flush_mode)
    for _ in range(chance.randrange(1, 30)):
        born_host, store_host = chance.choice(
            ((BORN_HOST, STORE_HOST), (HOST_V6, STORE_HOST), (HOST_V6, HOST_V6))
        )
        records = batch(chance, born_host, store_host)
        store.append(records, born_host=born_host, store_host=store_host)
        if chance.random() < 0.5:
            flush(store)
        store.dispatch(messages_max=chance.choice((1, 10, 1000)))
        prepare(store)
    dispatch_all(store)
    for topic, queue_id in store.queues():
        offsets = [offset for offset, _ in drain(store, topic, queue_id)]
        assert offsets == list(range(store.next_offset(topic, queue_id)))
    store.close()
    return files


def dispatch_all(store: MessageStore) -> None:
    flush(store)
    while store.dispatched_offset < store.max_physical:
        store.dispatch()


PLAIN = replace(SMALL, commit_log_file_bytes=16_384)
EXTENDED = replace(PLAIN, consume_queue_ext_enabled=True, consume_queue_ext_file_bytes=1 << 16)
CONFIGS = st.sampled_from([PLAIN, EXTENDED])


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 2**32), flush_mode=st.sampled_from(FlushMode), config=CONFIGS)
def test_dispatch_requests_and_scans_build_the_same_files(
    seed: int, flush_mode: FlushMode, config: StoreConfig
) -> None:
    by_request = built(fill(seed, requested_max=1 << 20, flush_mode=flush_mode, config=config))
    for requested_max in (0, 200):
        assert by_request == built(
            fill(seed, requested_max=requested_max, flush_mode=flush_mode, config=config)
        )


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 2**32), config=CONFIGS)
def test_missing_queue_and_index_files_are_rebuilt_identically(
    seed: int, config: StoreConfig
) -> None:
    chance = random.Random(seed)
    files = fill(seed, requested_max=1 << 20, flush_mode=FlushMode.ASYNC, config=config)
    before = built(files)
    for path in [path for path in files.nodes if str(path.relative_to(ROOT)) in before]:
        if chance.random() < 0.7:
            files.remove(path)
    with mock.patch.object(log_recovery, "no_bit_maps", bit_maps):
        store = open_store(files, config=config, flush_mode=FlushMode.ASYNC)
    dispatch_all(store)
    store.close()
    assert built(files) == before
