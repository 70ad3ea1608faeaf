"""A store whose process is killed at any moment loses nothing that it vouched for."""

import random
import signal
import threading
from pathlib import Path

import pytest

from ternmq_runtime.clock import SystemClock
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.message_store import MessageStore
from tests.support.examples import SEED, examples
from tests.support.index_queries import query
from tests.support.processes import kill
from tests.support.store_process import (
    MODES,
    READY,
    Acknowledged,
    acknowledged,
    begin,
    read_back,
    settings_of,
)

ROUNDS = examples(3, soak=50)
ROUNDS_A_STORE = 5


def kill_under_load(
    root: Path, mode: str, first: int, chance: random.Random, *, is_last: bool
) -> list[Acknowledged]:
    """Let a process store messages for a while; return what it vouched for.

    The last time that is at least one, however slow the machine is.
    """
    process = begin(root, mode, first)
    assert process.stdout is not None
    try:
        found: list[Acknowledged] = []
        if chance.random() < 0.25 and not is_last:
            # While it recovers from the last time, or even before.
            timer = threading.Timer(chance.uniform(0.2, 0.6), process.kill)
        else:
            assert process.stdout.readline().strip() == READY
            if is_last:
                found.append(next(acknowledged(process)))
            timer = threading.Timer(chance.uniform(0.0, 0.5), process.kill)
        timer.start()
        found += acknowledged(process)
        assert process.wait(10) == -signal.SIGKILL
        return found
    finally:
        kill(process)


def check(root: Path, mode: str, expected: list[Acknowledged]) -> None:
    """Open what is left and look each message up, by its queue and by its key."""
    store = MessageStore.open(root, *settings_of(mode), RealFileSystem(), SystemClock())
    try:
        queues = {
            (topic, queue_id): read_back(store, topic, queue_id)
            for topic, queue_id in store.queues()
        }
        for each in expected:
            found = queues[each.topic, each.queue_id].get(each.queue_offset)
            assert found == (each.physical_offset, each.body), each
        index = store._index  # pyright: ignore[reportPrivateUsage]
        assert index is not None
        some = random.Random(len(expected)).sample(expected, min(2000, len(expected)))
        for each in some:
            places = query(index, each.topic, each.key, 0, 1 << 62, 64)
            assert each.physical_offset in places, each
    finally:
        store.close()


@pytest.mark.parametrize("mode", MODES)
def test_every_confirmed_message_survives_kill_9(tmp_path: Path, mode: str) -> None:
    print(f"TESTS_SEED={SEED} repeats the moments as well as a machine can")
    chance = random.Random(f"{SEED} {mode}")
    expected: list[Acknowledged] = []
    first = total = 0
    for round_ in range(ROUNDS):
        root = tmp_path / str(round_ // ROUNDS_A_STORE)
        if round_ % ROUNDS_A_STORE == 0:
            expected.clear()
        found = kill_under_load(root, mode, first, chance, is_last=round_ == ROUNDS - 1)
        first += 1_000_000
        total += len(found)
        expected += found
        if chance.random() < 0.5 or round_ == ROUNDS - 1:
            check(root, mode, expected)
    assert total > 0
    print(f"mode={mode} rounds={ROUNDS} acknowledged={total}")
