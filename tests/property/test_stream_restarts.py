"""Streams under an engine like Spark's that stops anywhere: every message is read exactly once."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.queue import MessageQueue
from ternmq_pipeline.source.streams.checkpoint_offsets import NEW
from ternmq_pipeline.source.streams.micro_batch_stream import BatchLimit, MicroBatchStream
from tests.support.stream_table import Table, opened

QUEUES = tuple(MessageQueue("TopicA", f"broker-{name}", 0) for name in "abcd")
Place = tuple[MessageQueue, int]


class Engine:
    """What Spark does with a source: journal the end, take the rows, note that it is done."""

    def __init__(self, table: Table, options: Mapping[str, str]) -> None:
        self.table = table
        self.options = dict(options)
        self.journal: list[str] = []
        self.done = 0
        self.rows: Counter[Place] = Counter()
        self.source: MicroBatchStream = opened(table, None, **self.options)

    def restart(self, *, available_now: bool = False) -> None:
        """Begin a new run of the query: nothing is left but the journal."""
        self.source = opened(self.table, None, **self.options)
        if available_now:
            self.source.aim_at_present()

    def batch(self, stop: str = "", *, all_available: bool = False) -> bool:
        """Do one batch; tell whether there was one.

        Args:
            stop: "planned" or "journaled": where it is killed.
            all_available: Whether the limits do not count.
        """
        if self.done == len(self.journal):
            start = json.loads(self.journal[-1]) if self.journal else dict(NEW)
            end = json.dumps(self.source.next_end(start, BatchLimit(all_available=all_available)))
            if self.journal and end == self.journal[-1]:
                return False
            if stop == "planned":
                return True
            self.journal.append(end)
        start = json.loads(self.journal[-2]) if len(self.journal) > 1 else dict(NEW)
        offset_ranges = self.source.offset_ranges(start, json.loads(self.journal[-1]))
        if stop == "journaled":
            return True
        for offset_range in offset_ranges:
            self.rows.update(
                (offset_range.queue, at) for at in range(offset_range.begin, offset_range.end)
            )
        self.done = len(self.journal)
        return True

    def run_to_the_end(self, **how: Any) -> None:
        """Do batches until there is none; a stream that does not end fails."""
        for _ in range(500):
            if not self.batch(**how):
                return
        raise AssertionError("the run does not end")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("batch"), st.just(""), st.booleans()),
        st.tuples(st.just("killed"), st.sampled_from(["planned", "journaled"]), st.booleans()),
        st.tuples(st.just("now"), st.integers(0, 3), st.integers(0, 9)),
        st.tuples(st.just("trim"), st.integers(0, 3), st.just(0)),
    ),
    max_size=40,
)


@given(
    steps=STEPS,
    at_first=st.integers(1, 4),
    limit=st.sampled_from(["", "1", "3", "7"]),
    size=st.sampled_from(["", "250", "900"]),
    starting=st.sampled_from(["earliest", "latest"]),
)
def test_every_message_is_read_once_wherever_runs_end(
    steps: list[tuple[str, Any, Any]], at_first: int, limit: str, size: str, starting: str
) -> None:
    table = Table({queue: (0, 2 * place) for place, queue in enumerate(QUEUES[:at_first])})
    options = {"startingOffsets": starting}
    options |= {"maxOffsetsPerTrigger": limit} if limit else {}
    options |= {"maxBytesPerTrigger": size} if size else {}
    engine = Engine(table, options)
    begins: dict[MessageQueue, int] | None = None

    def send(place: int, count: int) -> None:
        queue = QUEUES[place]
        begin, end = table.ranges.get(queue, (0, 0))
        table.ranges[queue] = (begin, end + count)
        table.brokers.add(queue.broker_name)

    def trim(place: int) -> None:
        """Let retention take what is read, and no more."""
        queue = QUEUES[place]
        if engine.journal and engine.done == len(engine.journal) and queue in table.ranges:
            reached = json.loads(engine.journal[-1])["t"].get("TopicA", {})
            offset = reached.get(f"{queue.broker_name}:0", 0)
            begin, end = table.ranges[queue]
            table.ranges[queue] = (min(max(begin, offset), end), end)

    for kind, first, second in steps:
        if kind == "send":
            send(first, second)
        elif kind == "trim":
            trim(first)
        elif kind == "now":
            engine.restart(available_now=True)
            engine.batch()
            if second:
                send(first, second)
            engine.run_to_the_end()
            engine.restart()
        else:
            engine.batch(first, all_available=second)
            if kind == "killed":
                engine.restart()
        if begins is None and engine.journal:
            begins = begins_of(json.loads(engine.journal[0]))
    engine.run_to_the_end()
    begins = begins_of(json.loads(engine.journal[0])) if begins is None else begins
    wanted = Counter(
        (queue, at)
        for queue, (_, end) in table.ranges.items()
        for at in range(begins.get(queue, 0), end)
    )
    assert engine.rows == wanted


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("batch"), st.just(""), st.booleans()),
        st.tuples(st.just("killed"), st.sampled_from(["planned", "journaled"]), st.booleans()),
        st.tuples(st.just("now"), st.just(0), st.just(0)),
        st.tuples(st.just("hide"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("show"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("replace"), st.integers(0, 9), st.integers(0, 9)),
    ),
    max_size=40,
)


@given(changes=CHANGES, limit=st.sampled_from(["", "1", "7"]))
def test_returning_queues_and_replaced_stores_neither_lose_nor_double_rows(
    changes: list[tuple[str, Any, Any]], limit: str
) -> None:
    queues = [MessageQueue("TopicA", "broker-a", number) for number in range(4)]
    table = Table({queue: (0, queue.queue_id) for queue in queues})
    table.stores = {"broker-a": "store"}
    options = {"failOnDataLoss": "false"} | ({"maxOffsetsPerTrigger": limit} if limit else {})
    engine = Engine(table, options)
    hidden: dict[MessageQueue, tuple[int, int]] = {}
    for kind, first, second in changes:
        if kind == "send":
            there = hidden if queues[first] in hidden else table.ranges
            there[queues[first]] = (0, there[queues[first]][1] + second)
        elif kind == "hide":
            queue = queues[int(first)]
            # What a batch was to read that is repeated without its queue is passed over.
            if queue in table.ranges and engine.done == len(engine.journal):
                hidden[queue] = table.ranges.pop(queue)
        elif kind == "show":
            queue = queues[int(first)]
            if queue in hidden:
                table.ranges[queue] = hidden.pop(queue)
        elif kind == "replace":
            table.stores["broker-a"] += "+"
            hidden.clear()
            table.ranges = {queue: (0, (first * queue.queue_id + second) % 10) for queue in queues}
            engine.rows.clear()
        elif kind == "now":
            engine.restart(available_now=True)
            engine.run_to_the_end()
            engine.restart()
        else:
            engine.batch(first, all_available=second)
            if kind == "killed":
                engine.restart()
    table.ranges |= hidden
    engine.run_to_the_end()
    assert engine.rows == Counter(
        (queue, at) for queue, (_, end) in table.ranges.items() for at in range(end)
    )


def begins_of(first_end: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """Return where a query began, as the end of its first batch tells."""
    return {
        queue: offset
        for queue in QUEUES
        if (offset := first_end["from"].get("TopicA", {}).get(f"{queue.broker_name}:0")) is not None
    }
