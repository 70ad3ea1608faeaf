"""Records of any queue, taken as messages and as columns: both have the same rows and positions."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ternmq_consumer.process_queue.message_rows import decode_rows
from ternmq_consumer.pull.fetched_queue import FetchedQueue
from ternmq_consumer.pull.joint_columns import take_columns
from ternmq_consumer.pull_stream.flow_control import FlowControlWindow
from ternmq_consumer.pull_stream.pulled_queue import PulledQueue, PullReceiver
from ternmq_model.columns.column_names import COLUMNS
from ternmq_model.columns.pulled_batch import decode_columns
from ternmq_model.compression import compress
from ternmq_model.errors import CorruptBody, CorruptRecord
from ternmq_model.message_batch import decode_records
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import (
    BODY_AT,
    OVERHEAD_BYTES,
    decode_record,
    encode_record,
    read_physical_offset,
)
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import Subscription, parse_subscription
from ternmq_protos.v1 import messages_pb2 as messages
from tests.support.examples import examples
from tests.support.records import BORN_HOST, STORE_HOST, sizes_of
from tests.support.rows import row_of

pytest.importorskip("pyarrow")

QUEUE = MessageQueue("orders", "broker-a", 3)
WINDOW = FlowControlWindow(1000, 1 << 20)
SHOWN = tuple(name for name in COLUMNS if name != "body")


class Reply(NamedTuple):
    """Records of one reply, before the broker's protocol."""

    records: Sequence[bytes]
    next_offset: int


class CountedReads:
    """Subscriptions that count their begins and returned credit."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.credit = [0, 0]

    def subscribe(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        start: QueueOffset,
        window: FlowControlWindow,
        receiver: PullReceiver,
    ) -> PulledQueue:
        self.starts.append(start)
        return _Counted(self, queue, subscription, start, window, receiver)


class _Counted(PulledQueue):
    def __init__(self, reads: CountedReads, *rest: Any) -> None:
        super().__init__(None, *rest)  # type: ignore[arg-type]
        self._reads = reads

    def release(self, message_count: int, record_bytes: int, span: int = 0) -> None:
        self._reads.credit[0] += message_count
        self._reads.credit[1] += record_bytes

    def close(self) -> None:
        """No link has the subscription."""


@st.composite
def replies(draw: st.DrawFn) -> list[Reply]:
    """Draw replies with records of one queue; a few of them are damaged."""
    offset, made = 0, list[Reply]()
    for _ in range(draw(st.integers(1, 3))):
        records: list[bytes] = []
        for _ in range(draw(st.integers(1, 5))):
            offset += draw(st.sampled_from([0, 0, 0, 4]))
            records.append(draw(record(offset)))
            offset += 1
        offset += draw(st.integers(0, 2))
        made.append(Reply(records, offset))
    return made


@st.composite
def record(draw: st.DrawFn, offset: int) -> bytes:
    body, flags = draw(st.sampled_from([b"", b"body", b"x" * 300])), 0
    kind = draw(st.sampled_from(["plain"] * 4 + ["zlib", "broken", "other hosts"]))
    if kind == "zlib":
        body, flags = compress(b"text " * 100, "zlib", 1)
    elif kind == "broken":
        body, flags = b"no zlib", 0x301
    tags = draw(st.sampled_from([b"", b"TAGS\x01Aa\x02", b"TAGS\x01BB\x02", b"TAGS\x01c\x02"]))
    found = encode_record(
        topic=b"orders",
        queue_id=3,
        body=body,
        properties=tags + draw(st.sampled_from([b"", b"KEYS\x01k l\x02", b"UNIQ_KEY\x01u\x02"])),
        born_at_ms=1_700_000_000_000,
        born_host=bytes(range(20)) if kind == "other hosts" else BORN_HOST,
        store_host=STORE_HOST,
        sys_flag=flags,
        queue_offset=offset,
        physical_offset=offset * 1000,
        stored_at_ms=1_700_000_000_001,
        reconsume_times=draw(st.sampled_from([0, 2])),
    )
    if draw(st.integers(0, 15)) == 0:
        topic = found.rindex(b"\x06orders")
        at = draw(st.sampled_from([0, 3, 4, BODY_AT - 1, topic - bool(body), topic, topic + 8]))
        found = found[:at] + bytes((found[at] ^ draw(st.integers(1, 255)),)) + found[at + 1 :]
    return found


@st.composite
def damaged_reply(draw: st.DrawFn) -> tuple[bytes, NDArray[np.int32]]:
    """Draw contiguous records with changed bytes, and sizes that may be wrong."""
    records = [draw(record(offset)) for offset in range(draw(st.integers(1, 5)))]
    sizes = sizes_of(records).copy()
    data = bytearray(b"".join(records))
    for _ in range(draw(st.integers(0, 2))):
        row = draw(st.integers(0, len(records) - 1))
        begin, end = int(sizes[:row].sum()), int(sizes[: row + 1].sum())
        places = [
            st.integers(begin, end - 1),
            st.integers(begin + BODY_AT - 4, min(begin + BODY_AT + 40, end - 1)),
            st.integers(max(begin, end - 30), end - 1),
        ]
        data[draw(st.one_of(places))] = draw(st.sampled_from([0, 1, 5, 200, 255]))
    if draw(st.integers(0, 7)) == 0:
        row, other = (draw(st.integers(0, len(records) - 1)) for _ in range(2))
        moved = draw(st.sampled_from([1, 91, 1000, -200]))
        sizes[row] += moved
        sizes[other] -= draw(st.sampled_from([moved, moved, 0]))
    return bytes(data), sizes


def fetched_queue(reads: CountedReads, tags: str, *, check_crc: bool) -> FetchedQueue:
    def ignore(*_: object) -> None:
        """Handle no event."""

    fetched = FetchedQueue(
        QUEUE,
        parse_subscription("orders", tags),
        WINDOW,
        check_crc=check_crc,
        on_ready=ignore,
        on_gone=ignore,
        on_refused=ignore,
    )
    fetched.start(reads, QueueOffset(0))
    return fetched


def arrive(fetched: FetchedQueue, reply: Reply) -> None:
    fetched.on_records(
        messages.PulledRecords(
            records=b"".join(reply.records),
            record_sizes=sizes_of(reply.records).tobytes(),
            next_offset=reply.next_offset,
        )
    )


def as_row(message: StoredMessage) -> dict[str, Any]:
    try:
        return row_of(message)
    except CorruptBody:
        return row_of(message, SHOWN) | {"body": None}


def drained(fetched: FetchedQueue, counts: Sequence[int]) -> tuple[list[dict[str, Any]], str]:
    """Return all rows up to the end or a corrupt batch, and its error. A count of 0 takes columns.

    An empty text means no error.
    """
    rows: list[dict[str, Any]] = []
    index = 0
    while fetched.has_something:
        count = counts[index % len(counts)]
        index += 1
        try:
            if count:
                rows += map(as_row, fetched.take(count))
            else:
                batch = take_columns([fetched], COLUMNS).batch
                batch.validate(full=True)
                rows += batch.to_pylist()
        except CorruptRecord as error:
            return rows, str(error)
    return rows, ""


def outcome(decode: Callable[[], object]) -> tuple[object, ...]:
    """Return offset and reason of the error of `decode`; nothing if it returns."""
    try:
        decode()
    except CorruptRecord as error:
        return error.offset, error.reason
    return ()


def first_of_one_by_one(
    data: bytes, sizes: NDArray[np.int32], *, check_crc: bool
) -> Callable[[], None]:
    """Return a check of each record alone, the sizes of all before the checksums."""

    def check() -> None:
        ends = np.cumsum(sizes.astype(np.int64)).tolist()
        if ends[-1] != len(data) or sizes.min() < OVERHEAD_BYTES:
            raise CorruptRecord(PhysicalOffset(0), "record sizes do not add up to the records")
        for check_body in (False, check_crc):
            for end, size in zip(ends, sizes.tolist(), strict=True):
                at = read_physical_offset(data, end - size)
                try:
                    found = decode_record(data[end - size : end], check_crc=check_body)
                except CorruptRecord as error:
                    raise CorruptRecord(at, error.reason) from None
                if found is None or found.header.total_bytes != size:
                    raise CorruptRecord(at, "its size differs from that of its reply")

    return check


@given(damaged_reply(), st.booleans())
@settings(max_examples=examples(600))
def test_damaged_reply_has_one_error_as_messages_and_as_columns(
    drawn: tuple[bytes, NDArray[np.int32]], check_crc: bool
) -> None:
    data, sizes = drawn
    expected = outcome(first_of_one_by_one(data, sizes, check_crc=check_crc))
    polls: list[Callable[[], object]] = [
        lambda: decode_records(data, sizes, QUEUE, check_crc=check_crc),
        lambda: decode_columns(
            data, sizes, QUEUE.broker_name, columns=COLUMNS, check_crc=check_crc
        ),
    ]
    if check_crc:
        polls.append(lambda: decode_rows(data, sizes, QUEUE))
    assert [outcome(poll) for poll in polls] == [expected] * len(polls)


@given(
    replies(),
    st.sampled_from(["*", "Aa", "Aa || c", "none"]),
    st.lists(st.sampled_from([0, 0, 1, 2, 100]), min_size=1, max_size=4),
    st.booleans(),
)
@settings(max_examples=examples(200))
def test_columns_and_messages_have_equal_rows_positions_and_credit(
    drawn: list[Reply], tags: str, counts: list[int], check_crc: bool
) -> None:
    reads = CountedReads(), CountedReads()
    plain, mixed = (fetched_queue(each, tags, check_crc=check_crc) for each in reads)
    for reply in drawn:
        arrive(plain, reply)
        arrive(mixed, reply)
    rows, is_corrupt = drained(plain, [1000])
    found, is_found_corrupt = drained(mixed, counts)
    assert found == rows
    assert is_found_corrupt == is_corrupt
    assert mixed.position == plain.position
    assert mixed.settled == plain.settled
    assert reads[0].credit == reads[1].credit
    assert reads[0].starts == reads[1].starts


@given(replies(), st.sampled_from(["*", "Aa"]))
@settings(max_examples=examples(50))
def test_selected_columns_have_the_values_of_all(drawn: list[Reply], tags: str) -> None:
    whole, part = (fetched_queue(CountedReads(), tags, check_crc=False) for _ in range(2))
    for reply in drawn:
        arrive(whole, reply)
        arrive(part, reply)
    while whole.has_something:
        try:
            some = take_columns([part], ("queueOffset", "msgId")).batch
        except CorruptRecord:
            with pytest.raises(CorruptRecord):
                take_columns([whole], COLUMNS)
            break
        batch = take_columns([whole], COLUMNS).batch
        assert some.equals(batch.select(["queueOffset", "msgId"]))
    assert not part.has_something
