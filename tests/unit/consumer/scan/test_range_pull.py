"""A range as records, pulled without a group."""

from contextlib import nullcontext
from typing import Any

import pytest

from ternmq_consumer.scan import PulledBatch, ScanOptions, pull_range
from ternmq_model.errors import (
    ClosedError,
    ConnectionLost,
    RangeLost,
    RefusedError,
    Unreachable,
    refusal,
)
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.subscription import parse_subscription
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.service_methods import DESCRIBE_TOPIC
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.records import record, sizes_of
from tests.support.scripted_scans import ScriptedClient, numbered

QUEUE = MessageQueue("T", "broker-a", 2)


def pulled(begin: int, end: int, **fields: Any) -> messages.PullStreamReply:
    records = [numbered(record("T", body=b"%d" % offset), offset) for offset in range(begin, end)]
    fields = {"handle": 1, "next_offset": end, "max_offset": 1_000} | fields
    some = messages.PulledRecords(
        records=b"".join(records), record_sizes=sizes_of(records).tobytes(), **fields
    )
    return messages.PullStreamReply(pulled=[some])


def client(
    *scripts: list[Any], first: int = 0, end: int = 1_000, broker_ids: tuple[int, ...] = ()
) -> ScriptedClient:
    queues = [admin.QueueStatus(queue_id=2, min_offset=first, max_offset=end)]
    answer = admin.DescribeTopicReply(queues=queues)

    def describe(_request: admin.DescribeTopicRequest) -> admin.DescribeTopicReply:
        return answer

    answers = {DESCRIBE_TOPIC: describe}
    return ScriptedClient(scripts or [[]], answers=answers, broker_ids=broker_ids)


async def offsets(client: ScriptedClient, begin: int, end: int) -> list[tuple[int, int]]:
    read: list[tuple[int, int]] = []
    async for some in pull_range(client, QUEUE, begin, end, ScanOptions(retry_timeout_s=8)):
        assert isinstance(some, PulledBatch)
        assert sum(sizes(some)) == len(some.records)
        read.append((len(sizes(some)), some.next_offset))
    return read


def sizes(some: PulledBatch) -> list[int]:
    text = some.record_sizes
    return [int.from_bytes(text[at : at + 4], "little") for at in range(0, len(text), 4)]


def test_records_are_cut_at_the_end_of_the_range() -> None:
    async def main() -> None:
        told = client([pulled(5, 9), pulled(9, 30)])
        assert await offsets(told, 5, 11) == [(4, 9), (2, 11)]
        _ask, opening, subscribe, credit = told.requests[0]
        assert opening.open == messages.PullStreamOpen(client_id="test@1")
        assert subscribe.subscribe.offset == 5
        assert subscribe.subscribe.subscription.expression == "*"
        assert credit.credit.messages == 4

    run_in_virtual_time(main())


def test_pull_resumes_where_a_broken_connection_left_off() -> None:
    async def main() -> None:
        told = client(
            [pulled(5, 9), ConnectionLost("broke")],
            [pulled(9, 10), None],
            [ClosedError("another user of the connection gave it up")],
            [pulled(10, 12)],
        )
        assert await offsets(told, 5, 12) == [(4, 9), (1, 10), (2, 12)]
        assert [requests[2].subscribe.offset for requests in told.requests] == [5, 9, 10, 10]

    run_in_virtual_time(main())


def test_damaged_messages_are_counted_within_the_range() -> None:
    async def main() -> None:
        told = client(
            [pulled(5, 8, next_offset=9, damaged=1), ConnectionLost("broke")],
            [pulled(9, 12, damaged=0), pulled(12, 16, next_offset=30, damaged=4)],
        )
        read = [each async for each in pull_range(told, QUEUE, 5, 18)]
        assert [each.damaged for each in read] == [1, 1, 3]
        wanted = ScanOptions(subscription=parse_subscription("T", "a"))
        told = client([pulled(5, 8, next_offset=30, damaged=2)])
        (some,) = [each async for each in pull_range(told, QUEUE, 5, 18, wanted)]
        assert some.damaged == 2

    run_in_virtual_time(main())


def test_complete_range_needs_no_further_request() -> None:
    async def main() -> None:
        told = client([pulled(5, 12), ConnectionLost("broke")])
        assert await offsets(told, 5, 12) == [(7, 12)]
        assert len(told.requests) == 1

    run_in_virtual_time(main())


def test_filtered_messages_count_as_read() -> None:
    async def main() -> None:
        told = client([pulled(0, 0, next_offset=9), pulled(9, 12)])
        assert await offsets(told, 5, 12) == [(0, 9), (3, 12)]

    run_in_virtual_time(main())


def test_expired_offsets_are_named() -> None:
    async def main() -> None:
        with pytest.raises(RangeLost) as caught:
            await offsets(client(first=20), 5, 12)
        assert (caught.value.wanted_offset, caught.value.first_offset) == (5, 20)
        moved = pulled(0, 0, next_offset=30, min_offset=30)
        moved.pulled[0].status.code = ResponseCode.PULL_OFFSET_MOVED
        for overtaken in (moved, pulled(30, 40, min_offset=30)):
            with pytest.raises(RangeLost) as caught:
                await offsets(client([pulled(5, 9), overtaken]), 5, 50)
            assert (caught.value.wanted_offset, caught.value.first_offset) == (9, 30)

    run_in_virtual_time(main())


def test_stale_correction_of_a_broker_is_retried() -> None:
    async def main() -> None:
        moved = pulled(0, 0, next_offset=0)
        moved.pulled[0].status.code = ResponseCode.PULL_OFFSET_MOVED
        told = client([pulled(5, 9), moved], [pulled(9, 12)])
        assert await offsets(told, 5, 12) == [(4, 9), (3, 12)]

    run_in_virtual_time(main())


def test_queue_ending_before_the_range_is_retried_for_a_while() -> None:
    async def main() -> None:
        told = client([pulled(5, 9)], end=9)
        with pytest.raises(RangeLost, match="the queue ends at 9"):
            await offsets(told, 5, 12)
        assert len(told.requests) > 2

    run_in_virtual_time(main())


def test_offsets_a_slave_lacks_are_waited_for_and_never_lost() -> None:
    async def main() -> None:
        for behind in (client([pulled(5, 9)], end=9), client(first=20)):
            behind.broker_ids = [1] * 1_000
            begun_ms = behind.env.clock.monotonic_ms()
            with pytest.raises(Unreachable, match="a slave replaces the master"):
                await offsets(behind, 5, 12)
            assert behind.env.clock.monotonic_ms() - begun_ms >= 8_000
        behind = client([pulled(30, 40, min_offset=30)], [pulled(5, 12)])
        behind.broker_ids = [1]
        assert await offsets(behind, 5, 12) == [(7, 12)]

    run_in_virtual_time(main())


def test_range_of_a_deleted_topic_is_lost() -> None:
    async def main() -> None:
        def describe(_request: admin.DescribeTopicRequest) -> admin.DescribeTopicReply:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, "no", "broker-a")

        with pytest.raises(RangeLost, match="no message at offset 5: no ") as caught:
            await offsets(ScriptedClient(answers={DESCRIBE_TOPIC: describe}), 5, 12)
        assert (caught.value.end_offset, caught.value.topic_remark) == (0, "no")
        ended = pulled(0, 0)
        ended.pulled[0].status.code = ResponseCode.TOPIC_NOT_EXIST
        with pytest.raises(RangeLost, match="offset 9: the queue ends at 0"):
            await offsets(client([pulled(5, 9), ended]), 5, 12)

    run_in_virtual_time(main())


@pytest.mark.parametrize(("known", "is_read"), [(None, True), (70, True), (69, False)])
def test_range_of_a_topic_created_again_is_lost(known: int | None, is_read: bool) -> None:
    async def main() -> None:
        def describe(_request: admin.DescribeTopicRequest) -> admin.DescribeTopicReply:
            queue = admin.QueueStatus(queue_id=2, max_offset=1_000)
            return admin.DescribeTopicReply(queues=[queue], created_log_offset=70)

        cluster = ScriptedClient([[pulled(5, 12)]], answers={DESCRIBE_TOPIC: describe})
        read = pull_range(
            cluster, QUEUE, 5, 12, ScanOptions(created_log_offset=known, retry_timeout_s=1)
        )
        with nullcontext() if is_read else pytest.raises(RangeLost, match="created again"):
            assert [len(sizes(some)) async for some in read] == [7]

    run_in_virtual_time(main())


def test_refusal_is_raised() -> None:
    async def main() -> None:
        reply = pulled(0, 0)
        reply.pulled[0].status.code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
        with pytest.raises(RefusedError) as caught:
            await offsets(client([reply]), 5, 12)
        assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    run_in_virtual_time(main())
