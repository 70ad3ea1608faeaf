"""A store that is interrupted at any of its steps, or meets an error there, keeps its promises."""

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ternmq_model.errors import RefusedError, StoreError
from ternmq_store.config import FlushMode
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.message_store import MessageStore
from ternmq_store.opened_files import RecoveryAction
from ternmq_testing.memory.memory_files import PowerLossFileSystem, PowerLost
from tests.support.damage import CONFIG, Key, check_index, readable
from tests.support.examples import points
from tests.support.failpoints import CALL, MAP, FailingDisk
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, HandClock, append, log_bytes, open_store, settle

PHASES = (
    "open",
    "append",
    "roll",
    "prepare",
    "flush",
    "dispatch",
    "checkpoint",
    "delete",
    "truncate",
    "clean stop",
    "clean start",
)
FILE_BYTES = CONFIG.commit_log_file_bytes


class Script:
    """What a broker does in its life, on a disk that may stop it; and what it promised."""

    def __init__(self, disk: FailingDisk, flush_mode: FlushMode) -> None:
        self.disk = disk
        self.flush_mode = flush_mode
        self.clock = HandClock()
        self.store: MessageStore | None = None
        self.appended: dict[Key, set[bytes]] = defaultdict(set)
        self.ends: list[tuple[int, Key, bytes]] = []
        self.acknowledged: dict[Key, bytes] = {}
        self.flushed: dict[Key, bytes] = {}

    def run(self) -> None:
        """Do everything; refusals and failures are taken as a broker takes them."""
        self.phase("open", self.open)
        self.phase("append", lambda: self.append("A", 3))
        self.settle()
        self.phase("append", lambda: self.append("B", 4))
        self.phase("checkpoint", self.checkpoint)
        self.phase("roll", lambda: self.append("A", 5, body_bytes=700))
        self.settle()
        self.phase("prepare", self.prepare)
        self.phase("delete", self.delete)
        self.phase("append", lambda: self.append("B", 2))
        self.phase("flush", self.flush)
        self.phase("checkpoint", self.checkpoint)
        self.phase("append", lambda: self.append("A", 2, body_bytes=300))
        self.tear()
        self.phase("truncate", self.open)
        self.phase("append", lambda: self.append("A", 1))
        self.settle()
        self.phase("clean stop", self.close)
        self.phase("clean start", self.open)
        self.settle()

    def phase(self, name: str, act: Callable[[], object]) -> None:
        """Do one thing."""
        self.disk.phase = name
        self.clock.now_ms += 20_000
        try:
            act()
        except (StoreError, RefusedError, OSError):
            if self.store is None:  # a start that failed is tried again
                self.disk.locks.clear()
                act()
        self.take_note()

    def settle(self) -> None:
        """Bring what was appended to its readers."""
        self.phase("flush", self.flush)
        self.phase("dispatch", self.dispatch)
        self.phase("checkpoint", self.checkpoint)

    def open(self) -> None:
        """Start."""
        self.store = None
        self.disk.locks.clear()
        self.store = open_store(
            self.disk, config=CONFIG, flush_mode=self.flush_mode, clock=self.clock
        )

    def the_store(self) -> MessageStore:
        """Return the store, which is open."""
        assert self.store is not None
        return self.store

    def append(self, topic: str, count: int, *, body_bytes: int = 20) -> None:
        """Append one batch."""
        store = self.the_store()
        bodies = [self.disk.phase.encode() + bytes((n,)) * body_bytes for n in range(count)]
        keys = [{"KEYS": f"k{n}", "TAGS": "t"} for n in range(count)]
        batch = batch_of(
            *(record(topic, 0, body, pairs) for body, pairs in zip(bodies, keys, strict=True))
        )
        # What is half appended when it ends may be found later: it is known beforehand.
        places = append(store, batch)
        ends = np.append(places.physical_offsets[1:], places.end).tolist()
        for row, start in enumerate(places.physical_offsets.tolist()):
            size = int.from_bytes(self.log_bytes(start, 4), "big")
            data = self.log_bytes(start, size)
            key = (topic, 0, int(places.queue_offsets[row]))
            self.appended[key].add(data)
            self.ends.append((min(start + size, ends[row]), key, data))

    def log_bytes(self, start: int, size: int) -> bytes:
        """Return bytes of the log."""
        return log_bytes(self.disk, start, size, file_bytes=FILE_BYTES)

    def take_note(self) -> None:
        """Remember what counts as stored by now."""
        if self.store is None:
            return
        for end, key, data in self.ends:
            if end <= self.store.confirm_offset:
                self.acknowledged[key] = data
            if end <= self.store.flushed_offset:
                self.flushed[key] = data

    def flush(self) -> None:
        """Bring the log to the disk."""
        store = self.the_store()
        _carry_out(store.flush_due(1 << 60), store.flush_done)

    def dispatch(self) -> None:
        """Make messages readable."""
        while self.the_store().dispatch().more:
            pass

    def checkpoint(self) -> None:
        """Bring queues and checkpoint to the disk."""
        store = self.the_store()
        _carry_out(store.checkpoint_due(self.clock.now_ms), store.checkpoint_done)

    def prepare(self) -> None:
        """Make the next file ahead."""
        store = self.the_store()
        _carry_out(store.file_due(), store.file_ready)

    def delete(self) -> None:
        """Delete a topic."""
        for kept in (self.acknowledged, self.flushed):
            for key in [key for key in kept if key[0] == "B"]:
                del kept[key]
        self.ends = [row for row in self.ends if row[1][0] != "B"]
        self.the_store().delete_topic("B")

    def close(self) -> None:
        """Stop."""
        self.the_store().close()

    def tear(self) -> None:
        """Let the power go, and with it part of the newest record, which was not synced."""
        end, key, data = self.ends[-1] if self.ends else (0, ("", 0, 0), b"")
        if self.the_store().flushed_offset >= end:
            return
        self.ends.pop()
        self.acknowledged.pop(key, None)
        base = (end - 1) - (end - 1) % FILE_BYTES
        node = self.disk.nodes[commit_log_folder(ROOT) / file_name(base)]
        node.data[end - base - 90 : end - base] = 0
        self.appended[key].discard(data)


def _carry_out(task: Any, done: Callable[..., None]) -> None:
    """Run a task as the broker's pool does."""
    if task is None:
        return
    try:
        task.run()
    except OSError as error:
        done(task, error)
    else:
        done(task)


def check(disk: PowerLossFileSystem, script: Script, promised: dict[Key, bytes]) -> None:
    """Hold a store to what was promised, start after start."""
    store = open_store(disk, config=CONFIG, flush_mode=script.flush_mode, clock=script.clock)
    assert not [one for one in store.report.findings if one.what is RecoveryAction.QUARANTINED]
    found = readable(store)
    for topic, queue_id in store.queues():
        offsets = sorted(
            offset for name, number, offset in found if (name, number) == (topic, queue_id)
        )
        assert offsets == list(range(len(offsets)))
    for key, data in promised.items():
        assert found.get(key) == data, f"{key} was promised and is lost"
    for key, data in found.items():
        # Of an append in which it ended nobody was told where its records lie.
        assert data in script.appended[key] or script.disk.phase in {"append", "roll"}, key
    append(store, batch_of(record("A", 0, b"later"), record("C", 0)))
    settle(store)
    store.close()
    again = open_store(disk, config=CONFIG, flush_mode=script.flush_mode, clock=script.clock)
    assert again.report.was_clean
    assert not again.report.findings
    after = readable(again)
    assert found.items() < after.items()
    assert len(after) == len(found) + 2
    check_index(again, after)
    again.close()
    for path in [path for path in disk.nodes if {"consumequeue", "index"} & set(path.parts)]:
        disk.remove(path)
    rebuilt = open_store(disk, config=CONFIG, flush_mode=script.flush_mode, clock=script.clock)
    assert readable(rebuilt) == after
    check_index(rebuilt, after)
    rebuilt.close()


def steps_of(flush_mode: FlushMode) -> list[tuple[str, str]]:
    """Return every step of the script."""
    disk = FailingDisk()
    script = Script(disk, flush_mode)
    script.run()
    assert readable(script.the_store()).items() >= script.acknowledged.items()
    return disk.steps


STEPS = {mode: steps_of(mode) for mode in FlushMode}


def test_script_has_steps_of_all_kinds() -> None:
    for steps in STEPS.values():
        assert {phase for phase, _ in steps} == set(PHASES)
        assert {("append", CALL), ("roll", CALL), ("dispatch", MAP)} <= set(steps)
        assert ("append", MAP) not in steps


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("flush_mode", FlushMode)
def test_store_stopped_at_any_step_keeps_its_promises(phase: str, flush_mode: FlushMode) -> None:
    there = [point for point, (name, _) in enumerate(STEPS[flush_mode]) if name == phase]
    for point in points(there):
        disk = FailingDisk()
        disk.dies_at = point
        script = Script(disk, flush_mode)
        with pytest.raises(PowerLost):
            script.run()
        assert len(disk.steps) == point + 1
        lost = disk.lose_power(random.Random(point))
        check(disk.restart(), script, script.acknowledged)
        check(lost, script, script.flushed)


@pytest.mark.parametrize("phase", PHASES)
def test_store_failing_at_any_call_keeps_its_promises(phase: str) -> None:
    steps = enumerate(STEPS[FlushMode.SYNC])
    there = [point for point, step in steps if step == (phase, CALL)]
    for point in points(there):
        disk = FailingDisk()
        disk.fails_at = point
        script = Script(disk, FlushMode.SYNC)
        script.run()
        assert len(disk.steps) > point
        lost = disk.lose_power(random.Random(point))
        check(disk.restart(), script, script.acknowledged)
        check(lost, script, script.flushed)
