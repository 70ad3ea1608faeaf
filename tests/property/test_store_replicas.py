"""A replica has its master's log byte for byte, and tells of it what its master tells."""

import random
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import FLAG_COMMIT, FLAG_PREPARED, FLAG_ROLLBACK
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore
from ternmq_store.query.key_search import KeyQuery
from ternmq_store.replication.log_slice import LogSlice
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem
from tests.support.damage import CONFIG, readable
from tests.support.examples import examples
from tests.support.records import batch_of, record
from tests.support.replicas import confirm, follow, log_of, next_slice, open_replica, take
from tests.support.stores import (
    append,
    checkpoint,
    commit,
    flush,
    open_store,
    prepare,
    queue_files,
    settle,
)

REPEATS = examples(80, soak=1_000)
FILE_BYTES = CONFIG.commit_log_file_bytes
TOPICS = ("A", "B-longer-name")
PLAIN = replace(CONFIG, record_checksum=False)
EXTENDED = replace(CONFIG, consume_queue_ext_enabled=True, consume_queue_ext_file_bytes=1 << 16)


def some_batch(chance: random.Random) -> RecordBatch:
    """Return records of any queue, length and kind."""
    longest = chance.choice((50, 400, FILE_BYTES - 300))
    records = (
        record(
            chance.choice(TOPICS),
            chance.randrange(2),
            chance.randbytes(chance.randrange(longest)),
            {"TAGS": f"t{chance.randrange(3)}", "KEYS": f"k{chance.randrange(9)}"},
        )
        for _ in range(chance.randrange(1, 5))
    )
    batch = batch_of(*records)
    kinds = (0, 0, 0, FLAG_PREPARED, FLAG_COMMIT, FLAG_ROLLBACK)
    batch.headers["sys_flag"] |= np.array([chance.choice(kinds) for _ in range(len(batch))])
    return batch


def found_by_key(store: MessageStore) -> list[list[bytes]]:
    """Return what the index finds."""
    queries = [KeyQuery(topics=(topic,), key=f"k{n}") for topic in TOPICS for n in range(9)]
    return [list(store.searches.by_key(query).run()) for query in queries]


class Pair:
    """A master and its replica, which are used in any order."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.files, self.copy = MemoryFileSystem(), PowerLossFileSystem()
        self.flush_mode = chance.choice(tuple(FlushMode))
        self.master = open_store(self.files, config=chance.choice((CONFIG, PLAIN)))
        self.slave = self.reopened(0)
        self.told = 0
        self.had_crash = False

    def reopened(self, serve_to: int) -> MessageStore:
        """Open the replica."""
        config = self.chance.choice((CONFIG, PLAIN, EXTENDED))
        pool = self.flush_mode is FlushMode.ASYNC and self.chance.random() < 0.3
        config = replace(config, transient_pool_enabled=pool)
        return open_replica(self.copy, serve_to, config=config, flush_mode=self.flush_mode)

    def step(self) -> None:
        """Do one thing."""
        acts = [self.append] * 6 + [self.follow] * 5 + [self.confirm] * 3
        acts += [self.keep] * 2 + [self.stop, self.kill, self.lose_power, self.restart_master]
        self.chance.choice(acts)()
        assert self.slave.failure is None
        assert self.slave.dispatched_offset <= self.slave.confirm_offset

    def append(self) -> None:
        """Let the master store something."""
        batch = some_batch(self.chance)
        if self.chance.random() < 0.2 and len(batch.data) < FILE_BYTES - 200:
            self.master.append(batch, born_host=None, store_host=bytes(8), atomic=True)
        else:
            append(self.master, batch)
        if self.chance.random() < 0.3:
            settle(self.master)
        if self.chance.random() < 0.2:
            prepare(self.master)

    def follow(self) -> None:
        """Let the replica take some."""
        for _ in range(self.chance.randrange(1, 5)):
            size = self.chance.choice((1, 300, 1024, 10_000))
            piece = next_slice(self.master, self.slave.max_physical, size)
            if piece is None:
                return
            take(self.slave, piece)
            commit(self.slave)

    def confirm(self) -> None:
        """Let the master say what it has confirmed."""
        self.told = self.chance.randrange(self.told, int(self.master.max_physical) + 1)
        self.slave.confirm_limit = PhysicalOffset(self.told)

    def keep(self) -> None:
        """Let the replica flush, dispatch and note."""
        is_copying = self.chance.random() < 0.5
        for act in (flush, commit, checkpoint, partial(prepare, is_copying=is_copying)):
            if self.chance.random() < 0.7:
                act(self.slave)
        while self.chance.random() < 0.8 and self.slave.dispatch(messages_max=3).more:
            pass

    def stop(self) -> None:
        """Stop the replica and start it again."""
        commit(self.slave)
        self.slave.close()
        assert self.slave.failure is None
        self.slave = self.reopened(self.told)
        assert self.slave.report.was_clean

    def kill(self) -> None:
        """Kill the replica."""
        self.had_crash = True
        self.copy = self.copy.restart()
        self.slave = self.reopened(self.told)

    def lose_power(self) -> None:
        """Let the power of the replica go: what it called safe stays."""
        self.had_crash = True
        safe = int(self.slave.flushed_offset)
        self.copy = self.copy.lose_power(self.chance)
        self.slave = self.reopened(self.told)
        assert self.slave.max_physical >= safe

    def restart_master(self) -> None:
        """Stop the master and start it again: what it has is not in memory then."""
        self.master.close()
        self.master = open_store(self.files, config=self.chance.choice((CONFIG, PLAIN)))

    def check(self) -> None:
        """Hold the two to being the same."""
        follow(self.master, self.slave, bytes_max=self.chance.choice((200, 5000)))
        commit(self.slave)
        settle(self.master)
        confirm(self.slave)
        end = self.master.max_physical
        assert self.slave.dispatched_offset == self.slave.max_physical == end
        assert log_of(self.copy, end) == log_of(self.files, end)
        assert readable(self.slave) == readable(self.master)
        assert found_by_key(self.slave) == found_by_key(self.master)
        assert not self.slave.reads.quarantine.ranges
        self.slave.close()
        promoted = open_store(self.copy, config=CONFIG)
        assert promoted.report.was_clean
        assert not promoted.report.findings
        for topic, queue_id in self.master.queues():
            assert promoted.next_offset(topic, queue_id) == self.master.next_offset(topic, queue_id)


@settings(max_examples=REPEATS)
@given(st.integers(0, 1 << 32))
def test_replica_becomes_equal_to_its_master_whatever_happens(seed: int) -> None:
    pair = Pair(random.Random(seed))
    lead = pair.chance.choice((0, 300, 3000))
    with patch("ternmq_store.log.commit_log._FILL_LEAD_BYTES", lead):
        for _ in range(pair.chance.randrange(5, 40)):
            pair.step()
        pair.check()


@settings(max_examples=REPEATS)
@given(st.integers(0, 1 << 32))
def test_scanning_replica_writes_the_same_bytes_as_dispatch_requests(seed: int) -> None:
    chance = random.Random(seed)
    files, copy = MemoryFileSystem(), MemoryFileSystem()
    config = chance.choice((CONFIG, EXTENDED))
    master, slave = open_store(files, config=config), open_replica(copy, config=config)
    for _ in range(chance.randrange(1, 30)):
        append(master, some_batch(chance))
        if chance.random() < 0.5:
            settle(master)
        if chance.random() < 0.5:
            follow(master, slave, bytes_max=chance.choice((100, 2000)))
            confirm(slave)
    follow(master, slave)
    confirm(slave)
    settle(master)
    assert queue_files(copy) == queue_files(files)
    for folder in ("index", "consumequeue_ext"):
        assert content(copy, folder) == content(files, folder)


def content(files: MemoryFileSystem, folder: str) -> list[bytes]:
    """Return the bytes of all files of a part of the store; the index names its files by time."""
    paths = sorted(path for path in files.nodes if folder in path.parts)
    return [files.nodes[path].data.tobytes() for path in paths]


@settings(max_examples=REPEATS)
@given(st.integers(0, 1 << 32))
def test_discontinuous_piece_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    files, copy = MemoryFileSystem(), MemoryFileSystem()
    master, slave = open_store(files, config=CONFIG), open_replica(copy, config=CONFIG)
    for _ in range(chance.randrange(1, 12)):
        append(master, some_batch(chance))
    for _ in range(chance.randrange(4)):
        piece = next_slice(master, slave.max_physical, 1000)
        if piece is not None:
            take(slave, piece)
    piece = next_slice(master, slave.max_physical, chance.choice((500, 5000)))
    if piece is None:
        return
    before, end = {path: node.data.tobytes() for path, node in copy.nodes.items()}, piece.start
    with pytest.raises(CorruptRecord):
        take(slave, _forged(piece, chance))
    assert slave.max_physical == end
    assert {path: node.data.tobytes() for path, node in copy.nodes.items()} == before
    take(slave, piece)


def _forged(piece: LogSlice, chance: random.Random) -> LogSlice:
    """Return the piece, changed where it shows."""
    data, start = bytearray(piece.data), piece.start
    match chance.randrange(6):
        case 0:
            data = data[: chance.randrange(len(data))]
            if _is_whole(data):
                start = PhysicalOffset(start + 1)
        case 1:
            start = PhysicalOffset(max(start + chance.choice((-91, -8, -1, 1, 8, 91)), 0))
            start = PhysicalOffset(piece.start + 1) if start == piece.start else start
        case 2:
            data += chance.randbytes(chance.choice((1, 8, 100)))
        case 3:
            data = data[chance.randrange(1, len(data)) :]
        case 4:  # the size or the magic of the first record
            data[chance.randrange(8)] ^= 1 << chance.randrange(8)
        case _:
            data *= 2
    return replace(piece, data=bytes(data), start=start)


def _is_whole(data: bytearray) -> bool:
    """Tell whether records, or nothing at all, are left."""
    position = 0
    while 0 <= position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        position = position + size if size else -1
    return position == len(data)
