"""A store under load in a process of its own, to be killed. Run as a module, it is that process.

It tells each message on a line of its standard output once it may be acknowledged.
"""

import random
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from ternmq_model.errors import BrokerBusy
from ternmq_model.offsets import QueueOffset
from ternmq_runtime.clock import SystemClock, rest
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.message_store import MessageStore
from tests.support.processes import start_module
from tests.support.records import BORN_HOST, STORE_HOST, batch_of, record
from tests.support.stores import whole

STORE = StoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_units=500,
    index_slots=500,
    index_entries=2000,
    checkpoint_interval_ms=50,
    flush_interval_ms=20,
)
READY = "ready"
MODES = ("sync", "async", "pool")
"""How a process stores: with which flush, or asynchronously through a pool."""


class Acknowledged(NamedTuple):
    """One message that a process vouched for."""

    number: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int

    @property
    def body(self) -> bytes:
        """What the number stands for."""
        return body_of(self.number)

    @property
    def key(self) -> str:
        """The key it is indexed by."""
        return key_of(self.number)


def body_of(number: int) -> bytes:
    """Return the body of a message: 0 to 2,000 bytes, the same in every process."""
    chance = random.Random(number)
    return chance.randbytes(chance.choice((0, 10, 200, 2000)))


def key_of(number: int) -> str:
    """Return the key of a message."""
    return f"key-{number}"


def record_of(number: int, topic: str, queue_id: int) -> bytes:
    """Return the record of a message."""
    properties = {"KEYS": key_of(number), "UNIQ_KEY": f"{number:032X}", "TAGS": "tag"}
    return record(topic, queue_id, body_of(number), properties)


def settings_of(mode: str) -> tuple[StoreConfig, FlushMode]:
    """Return what a store that stores so is opened with."""
    if mode == "pool":
        return replace(STORE, transient_pool_enabled=True), FlushMode.ASYNC
    return STORE, FlushMode(mode)


def begin(root: Path, mode: str, first: int) -> subprocess.Popen[str]:
    """Begin a process that stores messages numbered from `first` on."""
    return start_module(__name__, str(root), mode, str(first))


def acknowledged(process: subprocess.Popen[str]) -> Iterator[Acknowledged]:
    """Yield what the process vouches for until it is dead; its last line may be cut."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith("\n") and line.strip() != READY:
            number, topic, *rest_ = line.split()
            yield Acknowledged(int(number), topic, *map(int, rest_))


class Task(Protocol):
    """What the store gives to another thread."""

    def run(self) -> None:
        """Do it."""
        ...


T = TypeVar("T", bound=Task)


class Load:
    """Appends as fast as it can, and lets one task of each kind run beside."""

    def __init__(self, store: MessageStore, first: int) -> None:
        self.store = store
        self.number = first
        self.chance = random.Random(first)
        self.waiting: deque[tuple[int, str]] = deque()
        self.threads = ThreadPoolExecutor(3)
        self.running: dict[str, tuple[Future[None], Callable[[OSError | None], None]]] = {}

    def run(self) -> None:
        """Go on until the process is killed."""
        while True:
            if len(self.waiting) < 2000:
                self.append()
            else:
                rest(0.0005)
            self.look("commit", lambda _now: self.store.commits.due(), self.store.commits.done)
            self.look("flush", self.store.flush_due, self.store.flush_done)
            self.look("checkpoint", self.store.checkpoint_due, self.store.checkpoint_done)
            self.look("file", lambda _now: self.store.file_due(), self.store.file_ready)
            self.store.dispatch()
            self.acknowledge()

    def append(self) -> None:
        """Append a batch of some queues."""
        places = [
            (self.number + row, self.chance.choice("AB"), self.chance.randrange(2))
            for row in range(self.chance.choice((1, 3, 40)))
        ]
        batch = batch_of(*(record_of(*place) for place in places))
        try:
            done = self.store.append(batch, born_host=BORN_HOST, store_host=STORE_HOST)
        except BrokerBusy:  # the log's next file is not ready yet
            return
        self.number += len(places)
        rows = zip(places, done.queue_offsets.tolist(), done.physical_offsets.tolist(), strict=True)
        lines = [
            f"{number} {topic} {queue_id} {offset} {physical}\n"
            for (number, topic, queue_id), offset, physical in rows
        ]
        self.waiting.append((done.end, "".join(lines)))

    def look(
        self,
        kind: str,
        due: Callable[[int], T | None],
        done: Callable[[T, OSError | None], None],
    ) -> None:
        """Begin a task that is due, and hand back one that has ended."""
        if kind in self.running:
            future, end = self.running[kind]
            if future.done():
                del self.running[kind]
                error = future.exception()
                assert error is None or isinstance(error, OSError)
                end(error)
        elif (task := due(SystemClock().monotonic_ms())) is not None:
            self.running[kind] = (self.threads.submit(task.run), partial(done, task))

    def acknowledge(self) -> None:
        """Vouch for what is confirmed."""
        lines: list[str] = []
        while self.waiting and self.waiting[0][0] <= self.store.confirm_offset:
            lines.append(self.waiting.popleft()[1])
        if lines:
            sys.stdout.write("".join(lines))
            sys.stdout.flush()


def read_back(store: MessageStore, topic: str, queue_id: int) -> dict[int, tuple[int, bytes]]:
    """Return physical offset and body of every message of a queue, by queue offset."""
    found: dict[int, tuple[int, bytes]] = {}
    offset, end = store.queue_range(topic, queue_id)
    while offset < end:
        result = store.read(topic, queue_id, QueueOffset(offset))
        position = 0
        for size in result.record_sizes.tolist():
            each = whole(result.records[position : position + size])
            found[each.header.queue_offset] = (each.header.physical_offset, bytes(each.body))
            position += size
        assert result.next_offset > offset
        offset = result.next_offset
    return found


def main(root: Path, mode: str, first: int) -> None:
    """Open the store and load it until the end."""
    store = MessageStore.open(root, *settings_of(mode), RealFileSystem(rest), SystemClock())
    print(READY, flush=True)
    Load(store, first).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
