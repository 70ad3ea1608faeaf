"""Look-up of the offsets at which queues begin, end, or stood at a time."""

import asyncio
from typing import Any, cast

import pytest

from ternmq_consumer.offsets.offset_lookup import OffsetLookup
from ternmq_model.errors import Unreachable
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import DESCRIBE_TOPIC, QUERY_OFFSET_BY_TIME


class World:
    """Brokers whose queue n has offsets n to 10 n; at time t it stood at n t."""

    def __init__(self) -> None:
        self.questions: list[str] = []

    async def reader(self, broker_name: str) -> Connection:
        if broker_name == "away":
            raise Unreachable(broker_name)
        self.questions.append(broker_name)
        return cast("Connection", self)

    async def call(self, rpc: object, request: Any, *, timeout_s: float) -> Any:
        if rpc is QUERY_OFFSET_BY_TIME:
            return admin.QueryOffsetByTimeReply(offset=request.queue_id * request.at_ms)
        assert rpc is DESCRIBE_TOPIC
        return admin.DescribeTopicReply(
            queues=[
                admin.QueueStatus(queue_id=number, min_offset=number, max_offset=10 * number)
                for number in range(4)
            ]
        )


def test_ends_of_a_topics_queues_take_one_request_per_broker() -> None:
    world = World()
    queues = [MessageQueue("t", name, number) for name in ("a", "b") for number in (1, 3, 9)]
    ranges = asyncio.run(OffsetLookup(world, timeout_s=1).ranges(queues))
    assert [ranges[queue] for queue in queues] == [(1, 10), (3, 30), (0, 0)] * 2
    assert world.questions == ["a", "b"]


def test_each_queue_has_its_own_time() -> None:
    ends = OffsetLookup(World(), timeout_s=1)
    times = {MessageQueue("t", "a", 2): 7, MessageQueue("t", "b", 3): 100}
    assert asyncio.run(ends.at_times(times)) == dict(zip(times, (14, 300), strict=True))
    assert asyncio.run(ends.at_times({})) == {}


def test_silent_broker_is_reported() -> None:
    ends = OffsetLookup(World(), timeout_s=1)
    with pytest.raises(Unreachable):
        asyncio.run(ends.range(MessageQueue("t", "away", 0)))
    with pytest.raises(Unreachable):
        asyncio.run(ends.at_times({MessageQueue("t", name, 0): 0 for name in ("a", "away")}))
