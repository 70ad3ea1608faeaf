"""What a pull consumer reads, and what is there to be polled."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ternmq_consumer.config import PullConsumerConfig
from ternmq_consumer.pull.fetched_queue import FetchedQueue
from ternmq_consumer.pull.pull_queues import PullQueues
from ternmq_consumer.pull_stream.flow_control import FlowControlWindow
from ternmq_consumer.pull_stream.pull_link import PullLink
from ternmq_consumer.pull_stream.pulled_queue import PulledQueue, PullReceiver
from ternmq_model.compression import compress
from ternmq_model.errors import CorruptRecord, MissingPackage, UsageError
from ternmq_model.message_batch import decode_records
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import Subscription, parse_subscription
from ternmq_protos.v1 import messages_pb2 as messages
from tests.support.handed_out import record_at
from tests.support.records import sizes_of

FIRST, SECOND = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)
EVERYTHING = parse_subscription("t", "*")


class Reads:
    """Reads nothing by itself."""

    def subscribe(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        start: QueueOffset,
        window: FlowControlWindow,
        receiver: PullReceiver,
    ) -> PulledQueue:
        link = PullLink.__new__(PullLink)
        return _Silent(link, queue, subscription, start, window, receiver)


class _Silent(PulledQueue):
    def close(self) -> None:
        """Nobody is told."""


def queues_of(*names: MessageQueue) -> PullQueues:
    queues = PullQueues(PullConsumerConfig(), lambda _queue, _error: None, lambda _error: None)
    for name in names:
        queues.add(name, EVERYTHING).start(Reads(), QueueOffset(0))
    return queues


def arrive(
    fetched: FetchedQueue,
    offsets: Sequence[int],
    body: bytes = b"body",
    flag: int = 0,
    *,
    is_corrupt: bool = False,
) -> None:
    """Let records of these offsets come."""
    records = [
        record_at(offset, queue=fetched.queue, body=body, sys_flag=flag) for offset in offsets
    ]
    fetched.on_records(
        messages.PulledRecords(
            records=b"".join(records).replace(body, b"torn" if is_corrupt else body),
            record_sizes=sizes_of(records).tobytes(),
            next_offset=offsets[-1] + 1,
        )
    )


def taken(queues: PullQueues, count: int) -> list[tuple[int, int]]:
    """Return queue id and offset of what is taken."""
    return [(each.queue.queue_id, each.queue_offset) for each in queues.take(count)]


def taken_columns(queues: PullQueues, _: int = 0) -> list[tuple[int, int]]:
    """Return queue id and offset of the rows that are taken."""
    pytest.importorskip("pyarrow")
    batch = queues.take_columns(("queueId", "queueOffset", "body"))
    rows = [] if batch is None else batch.to_pylist()
    return [(row["queueId"], row["queueOffset"]) for row in rows]


TAKES = pytest.mark.parametrize("take", [taken, taken_columns])
Take = Callable[[PullQueues, int], list[tuple[int, int]]]


def test_queues_take_turns_and_each_keeps_its_order() -> None:
    queues = queues_of(FIRST, SECOND)
    arrive(queues.get(FIRST), [0, 1, 2])
    arrive(queues.get(SECOND), [0, 1])
    assert taken(queues, 2) == [(0, 0), (0, 1)]
    assert taken(queues, 2) == [(1, 0), (1, 1)]
    assert taken(queues, 9) == [(0, 2)]
    assert taken(queues, 9) == []


def test_polled_messages_are_settled_only_on_demand() -> None:
    queues = queues_of(FIRST)
    fetched = queues.get(FIRST)
    arrive(fetched, [0, 1, 2, 3])
    assert taken(queues, 2) == [(0, 0), (0, 1)]
    assert (fetched.position, fetched.settled) == (2, 0)
    queues.settle()
    assert taken(queues, 1) == [(0, 2)]
    assert (fetched.position, fetched.settled) == (3, 2)
    fetched.start(Reads(), QueueOffset(7))
    assert fetched.settled == 7, "a seek tells where everything before is dealt with"


@TAKES
def test_corrupt_batch_settles_no_message_taken_before_it(take: Take) -> None:
    queues = queues_of(FIRST)
    fetched = queues.get(FIRST)
    arrive(fetched, [0, 1])
    arrive(fetched, [2], is_corrupt=True)
    assert take(queues, 9) == [(0, 0), (0, 1)]
    assert (fetched.position, fetched.settled) == (2, 0)
    arrive(fetched, [2], is_corrupt=True)
    with pytest.raises(CorruptRecord):
        take(queues, 9)
    assert (fetched.position, fetched.settled) == (2, 0)
    queues.settle()
    assert (fetched.position, fetched.settled) == (2, 2)


def test_queue_that_ends_earlier_is_read_from_the_first_message_not_taken() -> None:
    queues = queues_of(FIRST)
    fetched = queues.get(FIRST)
    for offsets in ([0, 1, 2, 3], [4, 5]):
        arrive(fetched, offsets)
    assert taken(queues, 2) == [(0, 0), (0, 1)]
    fetched.on_moved(QueueOffset(5))
    assert (fetched.position, fetched.settled) == (2, 0)
    assert taken(queues, 9) == []
    arrive(fetched, [2, 3])
    fetched.on_moved(QueueOffset(1))
    assert (fetched.position, fetched.settled) == (1, 0)
    queues.settle()
    fetched.on_moved(QueueOffset(0))
    assert (fetched.position, fetched.settled) == (0, 0)


@TAKES
def test_error_behind_taken_messages_is_raised_by_the_next_take(
    take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = queues_of(FIRST, SECOND)
    arrive(queues.get(FIRST), [0, 1])
    arrive(queues.get(SECOND), [7], *compress(b"text" * 100, "lz4", 0))
    with monkeypatch.context() as without:
        if take is taken:

            def fail(*given: Any, **more: Any) -> list[StoredMessage]:
                if given[2] == SECOND:
                    raise MissingPackage("lz4")
                return decode_records(*given, **more)

            without.setattr("ternmq_consumer.pull.fetched_queue.decode_records", fail)
        else:
            without.setitem(sys.modules, "lz4.frame", None)
        assert take(queues, 9) == [(0, 0), (0, 1)]
        arrive(queues.get(FIRST), [2])
        with pytest.raises(MissingPackage):
            take(queues, 9)
        assert take(queues, 9) == [(0, 2)], "the failing queue waits for its turn"
        with pytest.raises(MissingPackage):
            take(queues, 9)
    assert queues.get(SECOND).position == 0
    assert take(queues, 9) == [(1, 7)]


def test_replies_of_a_queue_become_one_batch_of_columns() -> None:
    queues = queues_of(FIRST)
    for offsets in ([0, 1], [2], [3]):
        arrive(queues.get(FIRST), offsets)
    assert taken_columns(queues) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert queues.get(FIRST).position == 4
    for first in (4, 6, 8):
        arrive(queues.get(FIRST), [first, first + 1], bytes(1400 << 10))
    assert taken_columns(queues) == [(0, 4), (0, 5)]


@pytest.mark.parametrize(
    ("second", "is_corrupt"),
    [
        pytest.param([2, 3], True, id="damaged"),
        pytest.param([1, 2], False, id="with an offset of the batch before"),
    ],
)
def test_batch_of_columns_ends_before_a_corrupt_reply(
    second: list[int], *, is_corrupt: bool
) -> None:
    queues = queues_of(FIRST)
    arrive(queues.get(FIRST), [0, 1])
    arrive(queues.get(FIRST), second, is_corrupt=is_corrupt)
    assert taken_columns(queues) == [(0, 0), (0, 1)]
    assert queues.get(FIRST).position == 2
    assert not queues.get(FIRST).has_something, "it is read again"
    arrive(queues.get(FIRST), second, is_corrupt=is_corrupt)
    with pytest.raises(CorruptRecord):
        taken_columns(queues)


def test_joined_batch_is_short_although_few_bytes_have_long_bodies() -> None:
    queues = queues_of(FIRST)
    arrive(queues.get(FIRST), range(4), *compress(bytes(4 << 20), "zlib", 9))
    assert taken_columns(queues) == [(0, 0), (0, 1)]
    assert taken_columns(queues) == [(0, 2), (0, 3)]


def test_queues_of_one_broker_are_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pulled_batch = pytest.importorskip("ternmq_model.columns.pulled_batch")
    far = MessageQueue("t", "b", 0)
    queues = queues_of(FIRST, SECOND, far)
    for name, offsets in ((FIRST, [0, 1]), (SECOND, [0]), (far, [0]), (FIRST, [2])):
        arrive(queues.get(name), offsets)
    decoded: list[int] = []

    def decode(*given: Any, **more: Any) -> Any:
        rows = pulled_batch.decode_columns(*given, **more)
        decoded.append(rows.batch.num_rows)
        return rows

    monkeypatch.setattr("ternmq_consumer.pull.joint_columns.decode_columns", decode)
    batch: Any = queues.take_columns(("brokerName", "queueId", "queueOffset"))
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        ("a", 0, 0), ("a", 0, 1), ("a", 0, 2), ("a", 1, 0), ("b", 0, 0),
    ]  # fmt: skip
    assert decoded == [4, 1]
    assert [each.position for each in queues.all] == [3, 1, 1]


def test_queues_behind_the_limit_of_a_decoding_have_the_next_turn() -> None:
    queues = queues_of(FIRST, SECOND)
    long = compress(bytes(4 << 20), "zlib", 9)
    arrive(queues.get(FIRST), range(3), *long)
    arrive(queues.get(SECOND), range(2), *long)
    assert taken_columns(queues) == [(0, 0), (1, 0)]
    assert taken_columns(queues) == [(0, 1), (1, 1)]
    assert taken_columns(queues) == [(0, 2)]
    assert [each.position for each in queues.all] == [3, 2]


def test_joined_queues_have_few_bytes_together() -> None:
    queues = queues_of(FIRST, SECOND)
    for name in (FIRST, SECOND):
        for offset in range(3):
            arrive(queues.get(name), [offset], bytes(1 << 20))
    assert taken_columns(queues) == [(0, 0), (0, 1), (0, 2)]
    assert [each.position for each in queues.all] == [3, 0]
    assert taken_columns(queues) == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("corrupt", [FIRST, SECOND])
def test_corrupt_queue_leaves_the_others(corrupt: MessageQueue) -> None:
    queues = queues_of(FIRST, SECOND)
    for name in (FIRST, SECOND):
        arrive(queues.get(name), [0, 1], is_corrupt=name == corrupt)
    good = 1 - corrupt.queue_id
    for expected in [[], [(good, 0), (good, 1)]] if corrupt == FIRST else [[(0, 0), (0, 1)]]:
        if expected:
            assert taken_columns(queues) == expected
        else:
            with pytest.raises(CorruptRecord):
                taken_columns(queues)
    assert queues.get(corrupt).position == 0
    assert not queues.get(corrupt).has_something, "it is read again"


def test_paused_queue_is_left_out_until_resumed() -> None:
    queues = queues_of(FIRST, SECOND)
    queues.pause(FIRST)
    arrive(queues.get(FIRST), [0])
    assert not queues.arrived.is_set(), "nobody is woken for it"
    arrive(queues.get(SECOND), [0])
    assert queues.arrived.is_set()
    assert taken(queues, 9) == [(1, 0)]
    assert queues.paused == [FIRST]
    queues.resume(FIRST)
    assert taken(queues, 9) == [(0, 0)]


def test_removed_queue_is_absent() -> None:
    queues = queues_of(FIRST, SECOND)
    arrive(queues.get(FIRST), [0])
    queues.pause(FIRST)
    for _ in range(2):
        queues.remove(FIRST)
    assert (queues.names, queues.paused, len(queues)) == ([SECOND], [], 1)
    assert taken(queues, 9) == []
    for use in (queues.get, queues.pause, queues.resume):
        with pytest.raises(UsageError, match=f"{FIRST} is not assigned"):
            use(FIRST)
