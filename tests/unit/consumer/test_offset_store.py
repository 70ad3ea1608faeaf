"""Offsets on their way to brokers."""

import asyncio
from typing import Any, cast

import pytest

from ternmq_consumer.offset_store import OffsetStore
from ternmq_model.errors import Unreachable
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.contracts import COMMIT_OFFSETS, QUERY_OFFSET
from ternmq_remoting.rpc import Connection

QUEUE = MessageQueue("t", "a", 0)
OTHER = MessageQueue("t", "b", 3)


class World:
    """Two brokers that keep offsets, and can be away."""

    def __init__(self) -> None:
        self.kept: dict[MessageQueue, int] = {}
        self.away: set[str] = set()
        self.requests: list[tuple[str, dict[int, int], bool]] = []
        self.refusal: common.Status | None = None

    async def broker(self, broker_name: str, broker_id: int = 0) -> Connection:
        if broker_name in self.away:
            raise Unreachable(broker_name)
        return cast("Connection", _Keeps(self, broker_name))

    def forget(self, broker_name: str, connection: Connection, broker_id: int = 0) -> None:
        raise AssertionError("is not called")


class _Keeps:
    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    async def call(self, rpc: object, request: Any, *, timeout_s: float) -> Any:
        if rpc is QUERY_OFFSET:
            queue = MessageQueue(request.topic, self._name, request.queue_id)
            return groups.QueryOffsetReply(offset=self._world.kept.get(queue, -1))
        assert rpc is COMMIT_OFFSETS
        reply = groups.CommitOffsetsReply()
        offsets = {offset.queue_id: offset.offset for offset in request.offsets}
        self._world.requests.append((self._name, offsets, request.force))
        for offset in request.offsets:
            queue = MessageQueue(offset.topic, self._name, offset.queue_id)
            kept = self._world.kept.get(queue, -1)
            if offset.offset < kept and not request.force:
                moved = common.Status(code=ResponseCode.PULL_OFFSET_MOVED)
                self._refuse(reply, offset, kept, moved)
            elif self._world.refusal is not None:
                self._refuse(reply, offset, kept, self._world.refusal)
            else:
                self._world.kept[queue] = offset.offset
        return reply

    def _refuse(
        self,
        reply: groups.CommitOffsetsReply,
        offset: groups.QueueOffset,
        kept: int,
        status: common.Status,
    ) -> None:
        reply.refused.add(topic=offset.topic, queue_id=offset.queue_id, offset=kept, status=status)


def store_in(world: World) -> OffsetStore:
    return OffsetStore(world, group="g", client_id="c", timeout_s=1)


def offset(number: int) -> QueueOffset:
    return QueueOffset(number)


def test_what_was_never_committed_is_none() -> None:
    world = World()
    world.kept[QUEUE] = 0
    store = store_in(world)
    assert asyncio.run(store.query(QUEUE)) == 0
    assert asyncio.run(store.query(OTHER)) is None


def test_only_what_has_changed_is_committed_one_request_for_each_broker() -> None:
    world = World()
    store = store_in(world)
    store.begin(QUEUE, offset(5), offset(5))
    store.begin(OTHER, offset(7), None)
    assert asyncio.run(store.commit())
    assert world.requests == [("b", {3: 7}, False)], "where a new group begins is committed"
    store.update(QUEUE, offset(9))
    store.update(QUEUE, offset(8))
    store.update(OTHER, offset(10))
    assert asyncio.run(store.commit([QUEUE]))
    assert world.requests[1:] == [("a", {0: 9}, False)]
    assert asyncio.run(store.commit())
    assert asyncio.run(store.commit())
    assert world.requests[2:] == [("b", {3: 10}, False)]


def test_a_broker_that_is_away_is_told_later_and_does_not_hold_up_others() -> None:
    world = World()
    store = store_in(world)
    store.begin(QUEUE, offset(1), None)
    store.begin(OTHER, offset(2), None)
    world.away.add("a")
    assert not asyncio.run(store.commit())
    assert world.kept == {OTHER: 2}
    world.away.clear()
    assert asyncio.run(store.commit())
    assert world.kept == {QUEUE: 1, OTHER: 2}


def test_a_refused_offset_is_told_tried_again_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    store = store_in(world)
    world.kept[QUEUE] = 100
    store.begin(QUEUE, offset(50), offset(40))
    store.begin(OTHER, offset(7), None)
    assert not asyncio.run(store.commit())
    assert not asyncio.run(store.commit())
    assert world.requests[1:] == [("b", {3: 7}, False), ("a", {0: 50}, False)]
    assert len(caplog.messages) == 1
    assert "offset=50 kept=100 reason=another consumer has committed 100" in caplog.text
    world.kept[QUEUE] = 45  # an operator has put it back
    assert asyncio.run(store.commit())
    assert world.kept[QUEUE] == 50
    assert asyncio.run(store.commit())
    assert len(world.requests) == 4


def test_the_log_tells_the_brokers_reason_when_nobody_is_further(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    store = store_in(world)
    world.refusal = common.Status(code=ResponseCode.INVALID_PARAMETER, remark="t ends at 3")
    store.begin(QUEUE, offset(50), offset(40))
    assert not asyncio.run(store.commit())
    assert "reason=t ends at 3 [29]" in caplog.text


def test_only_a_restart_goes_back_and_only_once() -> None:
    world = World()
    store = store_in(world)
    world.kept[QUEUE] = 100
    store.begin(QUEUE, offset(100), offset(100))
    store.restart(QUEUE, offset(30))
    store.update(QUEUE, offset(31))
    assert asyncio.run(store.commit())
    assert world.kept[QUEUE] == 31
    store.update(QUEUE, offset(32))
    assert asyncio.run(store.commit())
    assert [force for *_, force in world.requests] == [True, False]


def test_what_is_forgotten_is_committed_no_more() -> None:
    world = World()
    store = store_in(world)
    store.begin(QUEUE, offset(1), None)
    store.forget([QUEUE, OTHER])
    store.update(QUEUE, offset(5))
    assert asyncio.run(store.commit())
    assert world.requests == []
