"""With a pool, a kill costs what was not confirmed, a loss of power what was not flushed."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq_model.record.checksum import verify_checksum
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import PowerLossFileSystem, PowerLost
from tests.support.examples import examples
from tests.support.records import batch_of, record
from tests.support.stores import (
    SMALL,
    HandClock,
    append,
    checkpoint,
    commit,
    drain,
    flush,
    open_store,
    whole,
)

CONFIG = replace(
    SMALL, record_checksum=True, transient_pool_enabled=True, transient_pool_bytes=1 << 20
)


def act(store: MessageStore, chance: random.Random, clock: HandClock) -> None:
    """Do one thing that a broker does."""
    clock.now_ms += chance.choice((0, 1, 5_000))
    match chance.randrange(7):
        case 0 | 1 | 2:
            count = chance.choice((1, 1, 3, 12))
            bodies = [chance.randbytes(chance.choice((0, 10, 300, 1500))) for _ in range(count)]
            append(store, batch_of(*(record(body=body) for body in bodies)))
        case 3:
            commit(store)
        case 4:
            flush(store)
        case 5:
            store.dispatch(messages_max=chance.choice((1, 1000)))
        case _:
            checkpoint(store)


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32))
def test_confirmed_records_survive_a_kill_and_flushed_ones_power_loss(seed: int) -> None:
    chance, clock = random.Random(seed), HandClock()
    files = PowerLossFileSystem()
    store = open_store(files, config=CONFIG, flush_mode=FlushMode.ASYNC, clock=clock)
    for _ in range(4):
        if chance.random() < 0.7:
            files.happenings_left = chance.randrange(80)
        try:
            for _ in range(chance.randrange(1, 40)):
                act(store, chance, clock)
        except PowerLost:
            pass
        is_kill = chance.random() < 0.5
        promised = store.confirm_offset if is_kill else store.flushed_offset
        files = files.restart() if is_kill else files.lose_power(chance)
        store = open_store(files, config=CONFIG, flush_mode=FlushMode.ASYNC, clock=clock)
        assert store.max_physical >= promised
        found = drain(store, "flights", 0) if store.queues() else []
        assert [offset for offset, _ in found] == list(range(len(found)))
        for _, data in found:
            assert verify_checksum(data, whole(data).properties)
