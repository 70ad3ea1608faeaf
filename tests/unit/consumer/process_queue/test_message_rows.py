"""Rows of columns listeners, and calls that get them: long hand-outs come in several batches."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from ternmq_client.interceptors import ConsumeEvent, ConsumeInterceptors, ConsumeOutcome
from ternmq_consumer.consume_status import ListenerAnswer, ReconsumeLater
from ternmq_consumer.listener.consume_request import ConsumeRequest
from ternmq_consumer.listener.listener_call import Interception, in_columns
from ternmq_consumer.process_queue.message_rows import HandoutRows, MessageRows, decode_rows
from ternmq_model.compression import compress
from ternmq_model.errors import MissingPackage
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time
from tests.support.handed_out import QUEUE, World, of_offsets, record_at
from tests.support.records import sizes_of

pytest.importorskip("pyarrow")

RECORD_BYTES = 91 + 4 + 1 + 14
"""Length of the record of each message of a `World`."""


class Watch:
    def __init__(self) -> None:
        self.events: list[ConsumeEvent] = []

    def before_consume(self, event: ConsumeEvent) -> None:
        """Wait for the end."""

    def after_consume(self, event: ConsumeEvent) -> None:
        self.events.append(event)


class Columns:
    """Listener of either kind with an answer for each call."""

    def __init__(self, *answers: ListenerAnswer | Exception) -> None:
        self.answers = [*answers]
        self.seen: list[list[int]] = []
        self.indices: list[int] = []
        self.request: ConsumeRequest | None = None

    def plain(self, batch: Any) -> ListenerAnswer:
        assert self.request is not None
        self.indices.append(self.request.index)
        self.seen.append(batch.column("queueOffset").to_pylist())
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def waiting(self, batch: Any) -> ListenerAnswer:
        await asyncio.sleep(0)
        return self.plain(batch)


def hand_over(
    columns: Columns,
    *,
    is_async: bool,
    in_order: bool = False,
    watch: Watch | None = None,
    bytes_max: int = 2 * RECORD_BYTES,
) -> ConsumeRequest:
    """Hand five messages to the listener, in calls of at most `bytes_max`."""

    async def main() -> ConsumeRequest:
        columns.request = request = await World().request(5)
        interception = None
        if watch is not None:
            interception = Interception("g", VirtualClock(), ConsumeInterceptors([watch]))
        call = in_columns(
            columns.waiting if is_async else columns.plain,
            InlineBlocking(),
            in_order=in_order,
            interception=interception,
            bytes_max=bytes_max,
        )
        await call(request)
        return request

    return run_in_virtual_time(main())


@pytest.mark.parametrize("is_async", [False, True])
class TestBothKinds:
    def test_long_handout_comes_in_several_calls(self, is_async: bool) -> None:
        columns = Columns()
        assert hand_over(columns, is_async=is_async).unfinished == []
        assert columns.seen == [[0, 1], [2, 3], [4]]
        assert columns.indices == [0, 2, 4]
        columns = Columns()
        hand_over(columns, is_async=is_async, bytes_max=1)
        assert columns.seen == [[0], [1], [2], [3], [4]]

    def test_answer_counts_for_the_rows_of_its_call(self, is_async: bool) -> None:
        columns = Columns(ReconsumeLater(3, finished=1), ValueError("two"), True)
        request = hand_over(columns, is_async=is_async)
        assert (of_offsets(request.failed), request.levels) == ([1, 2, 3], [3, 0, 0])
        assert request.unreached == ()
        assert isinstance(request.error, ValueError)
        assert len(columns.seen) == 3

    def test_orderly_listener_gets_no_rows_behind_a_failure(self, is_async: bool) -> None:
        columns = Columns(True, ReconsumeLater(finished=1))
        request = hand_over(columns, is_async=is_async, in_order=True)
        assert (of_offsets(request.failed), of_offsets(request.unreached)) == ([3], [4])

    def test_revoked_handout_ends_between_calls(self, is_async: bool) -> None:
        columns = Columns()
        given = columns.plain

        def listener(batch: Any) -> ListenerAnswer:
            assert columns.request is not None
            columns.request.in_hand.dropped = True
            return given(batch)

        columns.plain = listener  # type: ignore[method-assign]
        request = hand_over(columns, is_async=is_async)
        assert (columns.seen, of_offsets(request.unreached)) == ([[0, 1]], [2, 3, 4])

    def test_interceptors_see_each_call_with_its_messages(self, is_async: bool) -> None:
        watch = Watch()
        hand_over(Columns(True, False), is_async=is_async, watch=watch)
        assert [of_offsets(each.messages) for each in watch.events] == [[0, 1], [2, 3], [4]]
        outcomes = [ConsumeOutcome.SUCCESS, ConsumeOutcome.FAILED, ConsumeOutcome.SUCCESS]
        assert [each.outcome for each in watch.events] == outcomes


def replies(bodies: Sequence[tuple[bytes, int]], *counts: int) -> MessageRows:
    """Return messages with these stored bodies and flags, in replies of these lengths."""
    records = [
        record_at(offset, body=body, sys_flag=flag) for offset, (body, flag) in enumerate(bodies)
    ]
    found: MessageRows | None = None
    for count in counts:
        part, records = records[:count], records[count:]
        more = decode_rows(b"".join(part), sizes_of(part), QUEUE)
        found = more if found is None else found.join(more)
    assert found is not None
    return found


def test_rows_end_where_decompressed_bodies_exceed_the_limit() -> None:
    packed = compress(bytes(1000), "zlib", 9)
    rest: Sequence[StoredMessage] = replies([packed] * 7, 4, 3)
    taken: list[int] = []
    while rest:
        rows = HandoutRows(rest, 2500)
        batch = rows.read()
        assert batch.column("body").nbytes <= 2500 + 4 * (batch.num_rows + 1)
        assert len(rows.messages) == batch.num_rows
        taken.append(batch.num_rows)
        rest = rest[batch.num_rows :]
    assert taken == [2, 2, 2, 1]


def test_missing_package_fails_all_messages_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    flag = 0x101
    rows = HandoutRows(replies([(b"packed", flag)] * 2, 2), 1000)
    with pytest.raises(MissingPackage):
        rows.read()
    assert len(rows.messages) == 2
