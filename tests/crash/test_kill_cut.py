"""A cut of the log whose process is killed at any moment is completed, and nothing comes back."""

import random
import threading
from pathlib import Path

from ternmq_model.offsets import PhysicalOffset
from ternmq_runtime.clock import SystemClock
from ternmq_store.config import FlushMode
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.message_store import MessageStore
from tests.support.cut_process import begin_cut, cut
from tests.support.examples import SEED, examples
from tests.support.processes import kill
from tests.support.records import batch_of
from tests.support.store_process import READY, STORE, body_of, read_back, record_of
from tests.support.stores import append, prepare, settle

ROUNDS = examples(3, soak=40)
COUNT = 12_000
BATCH = 200


def opened(root: Path) -> MessageStore:
    """Open the store."""
    return MessageStore.open(root, STORE, FlushMode.SYNC, RealFileSystem(), SystemClock())


def fill(root: Path) -> dict[int, int]:
    """Make a store of several files; return after how many messages its log ended where."""
    store, ends = opened(root), dict[int, int]()
    for first in range(0, COUNT, BATCH):
        prepare(store)
        records = (record_of(number, "T", 0) for number in range(first, first + BATCH))
        ends[int(append(store, batch_of(*records)).end)] = first + BATCH
    settle(store)
    store.close()
    return ends


def kill_in_the_middle(root: Path, at: int, chance: random.Random) -> None:
    """Let a process cut the log and kill it, if it is not faster."""
    process = begin_cut(root, at)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == READY
        timer = threading.Timer(chance.uniform(0.0, 0.3), process.kill)
        timer.start()
        process.wait(30)
        timer.cancel()
    finally:
        kill(process)


def bodies(store: MessageStore) -> list[bytes]:
    """Return what is served."""
    return [body for _, (_, body) in sorted(read_back(store, "T", 0).items())]


def test_cut_interrupted_by_a_kill_is_completed(tmp_path: Path) -> None:
    print(f"TESTS_SEED={SEED} repeats the moments as well as a machine can")
    chance = random.Random(SEED)
    whole = [body_of(number) for number in range(COUNT)]
    for round_ in range(ROUNDS):
        root = tmp_path / str(round_)
        ends = fill(root)
        at = chance.choice(list(ends))
        for _ in range(chance.randrange(1, 4)):
            kill_in_the_middle(root, at, chance)
        if chance.random() < 0.5:
            store = opened(root)
            assert store.max_physical in {at, max(ends)}
            assert bodies(store) == whole[: ends[int(store.max_physical)]]
            store.close()
        assert cut(root, at).log_end == at
        store = opened(root)
        assert store.report.was_clean
        assert not store.report.findings
        assert store.max_physical == PhysicalOffset(at)
        append(store, batch_of(record_of(ends[at], "T", 0)))
        settle(store)
        assert bodies(store) == whole[: ends[at] + 1]
        store.close()
