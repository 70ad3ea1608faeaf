"""The offset at which a group begins in a queue."""

import asyncio
from typing import Any, cast

import pytest

from ternmq_consumer.config import ConsumeFrom, PullConsumerConfig, PushConsumerConfig
from ternmq_consumer.offsets.consume_from_where import (
    ConsumeFromPolicy,
    InitialPosition,
    StartOffsets,
    consume_from_policy,
    initial_position,
)
from ternmq_consumer.offsets.remote_offset_store import RemoteOffsetStore
from ternmq_model.errors import ConfigError
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import DESCRIBE_TOPIC, QUERY_OFFSET, QUERY_OFFSET_BY_TIME

PLAIN, RETRY = "t", "%RETRY%g"
NEVER = -1


@pytest.mark.parametrize(
    ("consume_from", "topic", "place"),
    [
        (ConsumeFrom.LAST_OFFSET, PLAIN, InitialPosition.END),
        (ConsumeFrom.LAST_OFFSET, RETRY, InitialPosition.BEGIN),
        (ConsumeFrom.FIRST_OFFSET, PLAIN, InitialPosition.BEGIN),
        (ConsumeFrom.FIRST_OFFSET, RETRY, InitialPosition.BEGIN),
        (ConsumeFrom.TIMESTAMP, PLAIN, InitialPosition.TIME),
        (ConsumeFrom.TIMESTAMP, RETRY, InitialPosition.END),
    ],
)
def test_new_group_begins_as_rocketmqs_table_says(
    consume_from: ConsumeFrom, topic: str, place: InitialPosition
) -> None:
    assert initial_position(consume_from, topic) is place


class FixedClock:
    """A clock that stands."""

    def monotonic_ms(self) -> int:
        return 1

    def wall_ms(self) -> int:
        return 10_000_000


def test_default_start_time_is_half_an_hour_before_the_start() -> None:
    half_an_hour_ms = 1_800_000
    start = consume_from_policy(ConsumeFrom.TIMESTAMP, None, FixedClock())
    assert start == ConsumeFromPolicy(ConsumeFrom.TIMESTAMP, 10_000_000 - half_an_hour_ms)
    assert consume_from_policy(ConsumeFrom.TIMESTAMP, 0, FixedClock()).at_ms == 0


class Broker:
    """A broker with one queue from 5 to 50; what was stored at n ms lies at offset n / 100."""

    def __init__(self, told: int, *, is_kept: bool | None = True) -> None:
        self.told = told
        self.is_kept = is_kept

    async def reader(self, broker_name: str) -> Connection:
        return cast("Connection", self)

    async def call(self, rpc: object, request: Any, *, timeout_s: float) -> Any:
        if rpc is QUERY_OFFSET:
            reply = groups.QueryOffsetReply(offset=self.told)
            if self.is_kept is not None:
                reply.is_kept = self.is_kept
            return reply
        if rpc is QUERY_OFFSET_BY_TIME:
            assert request.boundary == admin.LOWER
            return admin.QueryOffsetByTimeReply(offset=request.at_ms // 100)
        assert rpc is DESCRIBE_TOPIC
        status = admin.QueueStatus(queue_id=0, min_offset=5, max_offset=50)
        return admin.DescribeTopicReply(queues=[status])


@pytest.mark.parametrize(
    ("consume_from", "topic", "kept", "begins_at", "committed"),
    [
        # What is kept decides, whatever the setting says.
        (ConsumeFrom.LAST_OFFSET, PLAIN, 7, 7, 7),
        (ConsumeFrom.TIMESTAMP, RETRY, 7, 7, 7),
        (ConsumeFrom.LAST_OFFSET, PLAIN, 0, 0, 0),
        (ConsumeFrom.LAST_OFFSET, PLAIN, NEVER, 50, None),
        (ConsumeFrom.LAST_OFFSET, RETRY, NEVER, 5, None),
        (ConsumeFrom.FIRST_OFFSET, PLAIN, NEVER, 5, None),
        (ConsumeFrom.TIMESTAMP, PLAIN, NEVER, 20, None),
        (ConsumeFrom.TIMESTAMP, RETRY, NEVER, 50, None),
    ],
)
def test_consuming_begins_at_committed_offset_or_where_the_setting_says(
    consume_from: ConsumeFrom, topic: str, kept: int, begins_at: int, committed: int | None
) -> None:
    broker = Broker(kept)
    offsets = RemoteOffsetStore(broker, group="g", client_id="c", timeout_s=1)
    points = StartOffsets(broker, offsets, ConsumeFromPolicy(consume_from, 2_000), timeout_s=1)
    assert asyncio.run(points.find(MessageQueue(topic, "b", 0))) == (begins_at, committed)


@pytest.mark.parametrize(
    ("consume_from", "topic", "begins_at"),
    [
        (ConsumeFrom.LAST_OFFSET, PLAIN, 30),
        (ConsumeFrom.LAST_OFFSET, RETRY, 5),
        (ConsumeFrom.FIRST_OFFSET, PLAIN, 5),
        (ConsumeFrom.TIMESTAMP, PLAIN, 20),
        (ConsumeFrom.TIMESTAMP, RETRY, 30),
    ],
)
def test_queue_added_under_a_member_begins_where_the_member_came(
    consume_from: ConsumeFrom, topic: str, begins_at: int
) -> None:
    broker = Broker(NEVER)
    offsets = RemoteOffsetStore(broker, group="g", client_id="c", timeout_s=1)
    points = StartOffsets(broker, offsets, ConsumeFromPolicy(consume_from, 2_000), timeout_s=1)
    found = asyncio.run(points.find(MessageQueue(topic, "b", 0), since_ms=3_000))
    assert found == (begins_at, None)


@pytest.mark.parametrize("is_kept", [False, None])
def test_young_queue_begins_where_its_broker_says_and_that_is_not_kept(
    is_kept: bool | None,
) -> None:
    broker = Broker(0, is_kept=is_kept)
    offsets = RemoteOffsetStore(broker, group="g", client_id="c", timeout_s=1)
    points = StartOffsets(
        broker, offsets, ConsumeFromPolicy(ConsumeFrom.LAST_OFFSET, 0), timeout_s=1
    )
    assert asyncio.run(points.find(MessageQueue(PLAIN, "b", 0))) == (0, None)


def test_unwritten_queue_begins_at_zero() -> None:
    offsets = RemoteOffsetStore(Broker(NEVER), group="g", client_id="c", timeout_s=1)
    first = ConsumeFromPolicy(ConsumeFrom.LAST_OFFSET, 0)
    points = StartOffsets(Broker(NEVER), offsets, first, timeout_s=1)
    assert asyncio.run(points.find(MessageQueue(PLAIN, "b", 9))) == (0, None)


@pytest.mark.parametrize("config", [PushConsumerConfig, PullConsumerConfig])
def test_impossible_start_is_refused(config: Any) -> None:
    assert config(consume_from=ConsumeFrom.TIMESTAMP, consume_at_ms=0).consume_at_ms == 0
    with pytest.raises(ConfigError, match=r"consume_at_ms=-1: must be 0 or more"):
        config(consume_from=ConsumeFrom.TIMESTAMP, consume_at_ms=-1)
    with pytest.raises(ConfigError, match=r"consume_at_ms=5: .*ConsumeFrom\.TIMESTAMP alone"):
        config(consume_from=ConsumeFrom.FIRST_OFFSET, consume_at_ms=5)
    with pytest.raises(ConfigError, match=r"consume_from='last': must be one of"):
        config(consume_from="last")
