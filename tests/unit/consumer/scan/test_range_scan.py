"""A range comes whole and once, whatever happens to the broker."""

from contextlib import aclosing
from typing import Any

import pytest

from ternmq_consumer.scan import ScannedBatch, ScanOptions, scan_range
from ternmq_model.errors import (
    BrokerBusy,
    ClosedError,
    ConnectionLost,
    InvalidParameter,
    RangeLost,
    RefusedError,
    TopicNotFound,
    Unreachable,
    refusal,
)
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.subscription import parse_subscription
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.scan_child import SCHEMA
from tests.support.scripted_scans import ScriptedClient

QUEUE = MessageQueue("T", "broker-a", 2)


def piece(data: bytes, next_offset: int, **fields: Any) -> messages.ScanReply:
    return messages.ScanReply(piece=data, next_offset=next_offset, **fields)


def batch(data: bytes, next_offset: int, **fields: Any) -> messages.ScanReply:
    return piece(data, next_offset, ends_batch=True, **fields)


def end(next_offset: int, **fields: Any) -> messages.ScanReply:
    return piece(b"\xff\xff\xff\xff\0\0\0\0", next_offset, ends_stretch=True, **fields)


def status(code: int, next_offset: int, min_offset: int = 0) -> messages.ScanReply:
    reply = messages.ScanReply(next_offset=next_offset, min_offset=min_offset, ends_stretch=True)
    reply.status.code = code
    reply.status.remark = "so it is"
    return reply


async def _read(
    client: ScriptedClient, begin: int, to: int, options: ScanOptions | None = None
) -> list[ScannedBatch]:
    return [each async for each in scan_range(client, QUEUE, begin, to, options)]


def test_pieces_become_whole_batches_beside_their_schema() -> None:
    async def main() -> None:
        client = ScriptedClient(
            [
                [
                    piece(SCHEMA[:5], 10),
                    piece(SCHEMA[5:] + b"ba", 10),
                    batch(b"tch", 15),
                    messages.ScanReply(next_offset=18, damaged=2),
                    batch(b"another", 19, damaged=2),
                    end(20, damaged=2),
                ]
            ]
        )
        assert await _read(client, 10, 20) == [
            (SCHEMA, b"batch", 15, 0),
            (SCHEMA, b"", 18, 2),
            (SCHEMA, b"another", 19, 2),
            (SCHEMA, b"", 20, 2),
        ]
        assert client.cancelled == 1

    run_in_virtual_time(main())


def test_incomplete_batch_is_read_again_without_duplicates() -> None:
    async def main() -> None:
        client = ScriptedClient(
            [
                [
                    piece(SCHEMA, 10),
                    batch(b"one", 12, damaged=1),
                    piece(b"tw", 12, damaged=1),
                    ConnectionLost("broke"),
                ],
                [Unreachable("is away")],
                [piece(SCHEMA, 12), batch(b"two", 14, damaged=1), None],
                [piece(SCHEMA + b"thr", 14), batch(b"ee", 16), end(16)],
            ]
        )
        read = await _read(client, 10, 16)
        assert [each.data for each in read] == [b"one", b"two", b"three"]
        assert [each.next_offset for each in read] == [12, 14, 16]
        assert [each.damaged for each in read] == [1, 2, 2]
        assert [requests[0].begin_offset for requests in client.requests] == [10, 12, 12, 14]
        assert client.forgotten == [0, 0, 0]

    run_in_virtual_time(main())


def test_complete_range_needs_no_further_request() -> None:
    async def main() -> None:
        client = ScriptedClient([[batch(SCHEMA + b"all", 16), ConnectionLost("broke")]])
        assert [each.data for each in await _read(client, 10, 16)] == [b"all"]
        assert len(client.requests) == 1

    run_in_virtual_time(main())


def test_broker_that_closes_is_dialled_again_as_its_role_may_change() -> None:
    async def main() -> None:
        for code, forgotten in (
            (ResponseCode.SERVICE_NOT_AVAILABLE, [0]),
            (ResponseCode.SYSTEM_BUSY, []),
        ):
            client = ScriptedClient([[status(code, 10)], [end(16)]])
            await _read(client, 10, 16)
            assert client.forgotten == forgotten

    run_in_virtual_time(main())


def test_request_carries_every_option() -> None:
    async def main() -> None:
        client = ScriptedClient([[end(16)]])
        options = ScanOptions(
            subscription=parse_subscription("T", "a || b"),
            stored_from_ms=1,
            stored_before_ms=2,
            keys=("k",),
            columns=("body", "tags"),
            batch_rows_max=3,
            batch_bytes_max=4,
            skips_damaged=True,
        )
        await _read(client, 10, 16, options)
        ((request,),) = client.requests
        assert request == messages.ScanRequest(
            topic="T",
            queue_id=2,
            begin_offset=10,
            end_offset=16,
            subscription=messages.Subscription(
                topic="T", expression="a || b", expression_type="TAG"
            ),
            stored_from_ms=1,
            stored_before_ms=2,
            keys=["k"],
            columns=["body", "tags"],
            batch_rows_max=3,
            batch_bytes_max=4,
            skips_damaged=True,
        )

    run_in_virtual_time(main())


def test_expired_offsets_are_named() -> None:
    async def main() -> None:
        code = ResponseCode.PULL_OFFSET_MOVED
        client = ScriptedClient([[piece(SCHEMA, 10), batch(b"one", 12), status(code, 12, 40)]])
        with pytest.raises(RangeLost) as caught:
            await _read(client, 10, 16)
        error = caught.value
        assert (error.topic, error.broker_name, error.queue_id) == QUEUE
        assert (error.wanted_offset, error.first_offset, error.end_offset) == (12, 40, None)
        assert "queue 2 of topic 'T' at broker broker-a has no message at offset 12" in str(error)
        assert error.code == code
        assert not error.retryable

    run_in_virtual_time(main())


def test_stale_correction_of_a_broker_is_retried() -> None:
    async def main() -> None:
        moved = status(ResponseCode.PULL_OFFSET_MOVED, 12, 0)
        client = ScriptedClient(
            [[batch(SCHEMA + b"one", 12), moved], [batch(SCHEMA + b"two", 16), end(16)]]
        )
        assert [each.data for each in await _read(client, 10, 16)] == [b"one", b"two"]

    run_in_virtual_time(main())


def test_queue_ending_before_the_range_is_retried_for_a_while() -> None:
    async def main() -> None:
        client = ScriptedClient([[end(12, min_offset=3)]])
        begun_ms = client.env.clock.monotonic_ms()
        with pytest.raises(RangeLost, match="the queue ends at 12") as caught:
            await _read(client, 12, 16)
        assert (caught.value.first_offset, caught.value.end_offset) == (3, 12)
        assert 5_000 <= client.env.clock.monotonic_ms() - begun_ms < 10_000

        client = ScriptedClient([[end(12)], [end(12)], [batch(SCHEMA + b"late", 16), end(16)]])
        assert [each.data for each in await _read(client, 12, 16)] == [b"late"]

    run_in_virtual_time(main())


def test_returning_master_is_given_time_for_its_last_messages() -> None:
    async def main() -> None:
        away = [[Unreachable("away")]] * 10
        late = [batch(SCHEMA + b"late", 16), end(16)]
        client = ScriptedClient([*away, [end(12)], [end(12)], late])
        begun_ms = client.env.clock.monotonic_ms()
        assert [each.data for each in await _read(client, 12, 16)] == [b"late"]
        assert client.env.clock.monotonic_ms() - begun_ms > 5_000
        client = ScriptedClient([*away, [end(12)]])
        with pytest.raises(RangeLost):
            await _read(client, 12, 16)

    run_in_virtual_time(main())


def test_offsets_a_slave_lacks_are_waited_for_and_never_lost() -> None:
    async def main() -> None:
        client = ScriptedClient([[end(12)]], broker_ids=[1] * 1_000)
        begun_ms = client.env.clock.monotonic_ms()
        with pytest.raises(Unreachable, match=r"a slave replaces the master .* not yet offset 12"):
            await _read(client, 12, 16, ScanOptions(retry_timeout_s=30))
        assert client.env.clock.monotonic_ms() - begun_ms >= 30_000

    run_in_virtual_time(main())


def test_range_of_a_deleted_topic_is_lost_when_the_master_confirms() -> None:
    async def main() -> None:
        deleted = status(ResponseCode.TOPIC_NOT_EXIST, 12)
        refused = refusal(ResponseCode.TOPIC_NOT_EXIST, "no", "broker-a")
        for said, told in ((deleted, "so it is"), (refused, "no")):
            client = ScriptedClient([[batch(SCHEMA + b"one", 12), said]])
            with pytest.raises(RangeLost, match=f"no message at offset 12: {told} ") as caught:
                await _read(client, 10, 16)
            assert (caught.value.wanted_offset, caught.value.end_offset) == (12, 0)
            assert len(client.requests) == 1
        whole = [batch(SCHEMA + b"one", 16), end(16)]
        client = ScriptedClient([[deleted], [deleted], whole], broker_ids=(1, 1, 0))
        assert [each.data for each in await _read(client, 12, 16)] == [b"one"]
        client = ScriptedClient([[deleted]], broker_ids=[1] * 1_000)
        with pytest.raises(Unreachable, match="a slave replaces the master"):
            await _read(client, 12, 16, ScanOptions(retry_timeout_s=8))

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    "said",
    [
        status(ResponseCode.SYSTEM_BUSY, 10),
        status(ResponseCode.SERVICE_NOT_AVAILABLE, 10),
        BrokerBusy(ResponseCode.SYSTEM_BUSY, "reader took nothing"),
        ConnectionLost("broke"),
        ClosedError("another user of the connection gave it up"),
    ],
)
def test_passing_failures_are_retried_until_the_timeout(said: Any) -> None:
    async def main() -> None:
        client = ScriptedClient([[said], [said], [batch(SCHEMA + b"x", 16), end(16)]])
        assert [each.data for each in await _read(client, 10, 16)] == [b"x"]
        client = ScriptedClient([[said]])
        begun_ms = client.env.clock.monotonic_ms()
        with pytest.raises((RefusedError, ConnectionLost)):
            await _read(client, 10, 16, ScanOptions(retry_timeout_s=8))
        assert 8_000 <= client.env.clock.monotonic_ms() - begun_ms < 12_000

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.NO_PERMISSION,
        ResponseCode.SYSTEM_ERROR,
    ],
)
def test_permanent_refusals_are_not_retried(code: int) -> None:
    async def main() -> None:
        for said in (status(code, 10), refusal(code, "no")):
            client = ScriptedClient([[said]])
            with pytest.raises(RefusedError) as caught:
                await _read(client, 10, 16)
            assert caught.value.code == code
            assert len(client.requests) == 1

    run_in_virtual_time(main())


def test_unknown_topic_is_retried_for_a_while() -> None:
    class Forgetful(ScriptedClient):
        unknown = 3

        async def route(self, topic: str) -> ScriptedClient:
            self.unknown -= 1
            if self.unknown >= 0:
                raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"nobody has {topic}", "ns")
            return self

    async def main() -> None:
        client = Forgetful([[batch(SCHEMA + b"x", 16), end(16)]])
        assert [each.data for each in await _read(client, 10, 16)] == [b"x"]
        client = Forgetful([[]])
        client.unknown = 1_000
        begun_ms = client.env.clock.monotonic_ms()
        with pytest.raises(TopicNotFound, match="nobody has T"):
            await _read(client, 10, 16)
        assert 5_000 <= client.env.clock.monotonic_ms() - begun_ms < 10_000

    run_in_virtual_time(main())


def test_progress_restarts_the_retry_timeout() -> None:
    async def main() -> None:
        scripts: list[list[Any]] = []
        for number in range(10, 20):
            scripts.append([batch(SCHEMA + b"x", number + 1), ConnectionLost("broke")])
            scripts += [[Unreachable("away")]] * 2
        client = ScriptedClient([*scripts, [end(20)]])
        batches = await _read(client, 10, 20, ScanOptions(retry_timeout_s=1.5))
        assert [each.next_offset for each in batches] == list(range(11, 21))

    run_in_virtual_time(main())


def test_closed_iterator_ends_the_stream() -> None:
    async def main() -> None:
        client = ScriptedClient([[batch(SCHEMA + b"x", 11), batch(b"y", 12)]])
        async with aclosing(scan_range(client, QUEUE, 10, 16)) as batches:
            assert (await anext(batches)).data == b"x"
        assert client.cancelled == 1

    run_in_virtual_time(main())


def test_server_error_names_the_impossible_field() -> None:
    async def main() -> None:
        client = ScriptedClient([[status(ResponseCode.INVALID_PARAMETER, 10)]])
        with pytest.raises(InvalidParameter, match="broker-a: so it is"):
            await _read(client, 10, 16)

    run_in_virtual_time(main())
