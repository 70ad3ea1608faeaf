"""Offsets on their way to brokers."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from ternmq_consumer.offsets.remote_offset_store import RemoteOffsetStore
from ternmq_model.errors import Unreachable
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import COMMIT_OFFSETS, QUERY_OFFSET

QUEUE = MessageQueue("t", "a", 0)
OTHER = MessageQueue("t", "b", 3)


class World:
    """Two brokers that keep offsets, and can be away."""

    def __init__(self) -> None:
        self.kept: dict[MessageQueue, int] = {}
        self.young_offset = -1
        """Where a new group begins; -1 = the consumer decides."""
        self.tells_if_kept = True
        self.away: set[str] = set()
        self.versions: dict[MessageQueue, int] = {}
        self.requests: list[tuple[str, dict[int, int], bool]] = []
        self.told_versions: list[int] = []
        self.before_answer: list[Callable[[], None]] = []
        """Called once each, when a commit was taken and not yet answered."""
        self.refusal: common.Status | None = None

    async def reader(self, broker_name: str) -> Connection:
        if broker_name in self.away:
            raise Unreachable(broker_name)
        return cast("Connection", _Keeps(self, broker_name))


class _Keeps:
    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    async def call(self, rpc: object, request: Any, *, timeout_s: float) -> Any:
        if rpc is QUERY_OFFSET:
            queue = MessageQueue(request.topic, self._name, request.queue_id)
            told = groups.QueryOffsetReply(
                offset=self._world.kept.get(queue, self._world.young_offset),
                version=self._world.versions.get(queue, 0),
            )
            if self._world.tells_if_kept:
                told.is_kept = queue in self._world.kept
            return told
        assert rpc is COMMIT_OFFSETS
        reply = groups.CommitOffsetsReply()
        offsets = {offset.queue_id: offset.offset for offset in request.offsets}
        self._world.requests.append((self._name, offsets, request.force))
        for offset in request.offsets:
            queue = MessageQueue(offset.topic, self._name, offset.queue_id)
            kept = self._world.kept.get(queue, -1)
            version = self._world.versions.get(queue, 0)
            self._world.told_versions.append(offset.version)
            is_lower = offset.version == version and offset.offset < kept
            if not request.force and (is_lower or offset.version < version):
                moved = common.Status(code=ResponseCode.PULL_OFFSET_MOVED)
                self._refuse(reply, offset, kept, moved)
            elif self._world.refusal is not None:
                self._refuse(reply, offset, kept, self._world.refusal)
            else:
                self._world.kept[queue] = offset.offset
                if request.force:
                    self._world.versions[queue] = max(version, offset.version) + 1
                    self._keep(reply, offset)
        while self._world.before_answer:
            self._world.before_answer.pop()()
        return reply

    def _keep(self, reply: groups.CommitOffsetsReply, offset: groups.QueueOffset) -> None:
        queue = MessageQueue(offset.topic, self._name, offset.queue_id)
        kept = reply.kept.add(topic=offset.topic, queue_id=offset.queue_id, offset=offset.offset)
        kept.version = self._world.versions[queue]

    def _refuse(
        self,
        reply: groups.CommitOffsetsReply,
        offset: groups.QueueOffset,
        kept: int,
        status: common.Status,
    ) -> None:
        queue = MessageQueue(offset.topic, self._name, offset.queue_id)
        reply.refused.add(
            topic=offset.topic,
            queue_id=offset.queue_id,
            offset=kept,
            status=status,
            version=self._world.versions.get(queue, 0),
        )


def store_in(world: World) -> RemoteOffsetStore:
    return RemoteOffsetStore(world, group="g", client_id="c", timeout_s=1)


def offset(number: int) -> QueueOffset:
    return QueueOffset(number)


def test_uncommitted_queue_has_no_offset() -> None:
    world = World()
    world.kept[QUEUE] = 0
    store = store_in(world)
    assert asyncio.run(store.query(QUEUE)) == (0, True)
    assert asyncio.run(store.query(OTHER)) is None
    world.young_offset = 0
    assert asyncio.run(store.query(OTHER)) == (0, False)
    world.tells_if_kept = False
    assert asyncio.run(store.query(QUEUE)) == (0, None)


def test_queue_has_begun_once_the_broker_keeps_an_offset() -> None:
    world = World()
    store = store_in(world)
    store.begin(QUEUE, offset(5), None)
    world.refusal = common.Status(code=ResponseCode.TOPIC_NOT_EXIST)
    assert not asyncio.run(store.commit())
    assert not store.has_begun(QUEUE)
    world.refusal = None
    assert asyncio.run(store.commit())
    assert store.has_begun(QUEUE)
    another = store_in(world)
    another.begin(QUEUE, offset(4), None)
    assert not asyncio.run(another.commit())
    assert another.has_begun(QUEUE), "somebody else was first"
    assert not another.has_begun(OTHER)
    assert RemoteOffsetStore(world, group="", client_id="c", timeout_s=1).has_begun(OTHER)


def test_version_waits_until_the_broker_confirms_every_seek() -> None:
    world = World()
    store = store_in(world)
    assert not asyncio.run(store.versions([QUEUE]))
    store.begin(QUEUE, offset(5), offset(5))
    store.reset(QUEUE, offset(3), 4)
    assert asyncio.run(store.versions([QUEUE])) == {QUEUE: 4}
    assert not world.requests
    store.restart(QUEUE, offset(0))
    store.restart(QUEUE, offset(1))
    world.refusal = common.Status(code=ResponseCode.TOPIC_NOT_EXIST)
    assert not asyncio.run(store.versions([QUEUE]))
    world.refusal = None
    assert asyncio.run(store.versions([QUEUE])) == {QUEUE: 5}
    assert world.versions[QUEUE] == 5


def test_changed_offsets_are_committed_with_one_request_per_broker() -> None:
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


def test_absent_broker_is_committed_to_later_without_delaying_others() -> None:
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


def test_refused_offset_is_reported_retried_and_logged_once(
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


def test_log_carries_the_brokers_reason_for_unexplained_refusals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    store = store_in(world)
    world.refusal = common.Status(code=ResponseCode.INVALID_PARAMETER, remark="t ends at 3")
    store.begin(QUEUE, offset(50), offset(40))
    assert not asyncio.run(store.commit())
    assert "reason=t ends at 3 [29]" in caplog.text


def test_offset_goes_back_only_by_a_restart_and_once() -> None:
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


def test_forgotten_queues_are_not_committed() -> None:
    world = World()
    store = store_in(world)
    store.begin(QUEUE, offset(1), None)
    store.forget([QUEUE, OTHER])
    store.update(QUEUE, offset(5))
    assert asyncio.run(store.commit())
    assert world.requests == []


def test_commit_carries_the_version_received_with_the_offset() -> None:
    world = World()
    store = store_in(world)
    world.kept[QUEUE], world.versions[QUEUE] = 5, 3
    assert asyncio.run(store.query(QUEUE)) == (5, True)
    store.begin(QUEUE, offset(5), offset(5))
    store.update(QUEUE, offset(6))
    assert asyncio.run(store.commit())
    assert world.told_versions == [3]


def test_commits_after_a_seek_carry_its_version_and_older_ones_are_refused() -> None:
    world = World()
    store, other = store_in(world), store_in(world)
    for each in (store, other):
        each.begin(QUEUE, offset(100), None)
        assert asyncio.run(each.commit())
    store.restart(QUEUE, offset(10))
    assert asyncio.run(store.commit())
    store.update(QUEUE, offset(11))
    assert asyncio.run(store.commit())
    assert world.told_versions == [0, 0, 0, 1]
    other.update(QUEUE, offset(500))
    assert not asyncio.run(other.commit())
    assert world.kept[QUEUE] == 11


def test_seek_to_the_current_offset_still_raises_the_version() -> None:
    world = World()
    store = store_in(world)
    store.begin(QUEUE, offset(7), offset(7))
    store.restart(QUEUE, offset(7))
    assert asyncio.run(store.commit())
    assert world.versions[QUEUE] == 1


def test_seek_during_another_commit_is_committed_after_it() -> None:
    world = World()
    store = store_in(world)
    store.begin(QUEUE, offset(50), offset(50))
    store.restart(QUEUE, offset(10))
    world.before_answer.append(lambda: store.restart(QUEUE, offset(20)))
    assert asyncio.run(store.commit())
    assert asyncio.run(store.commit())
    assert [(offsets, force) for _, offsets, force in world.requests] == [
        ({0: 10}, True),
        ({0: 20}, True),
    ]
    assert world.versions[QUEUE] == 2


def test_answer_of_the_former_member_does_not_stop_the_commit_to_the_present_one() -> None:
    world = World()
    store = store_in(world)
    store.begin(QUEUE, offset(50), offset(50))
    store.update(QUEUE, offset(60))
    world.before_answer.append(lambda: store.resend_offsets(QUEUE.broker_name))
    assert asyncio.run(store.commit())
    world.kept.clear()  # the member that answered is another one than now
    assert asyncio.run(store.commit())
    assert world.kept == {QUEUE: 60}


def test_sought_offsets_are_committed_apart_from_consumed_ones() -> None:
    world = World()
    store = store_in(world)
    near = QUEUE._replace(queue_id=1)
    store.begin(QUEUE, offset(50), None)
    store.begin(near, offset(60), None)
    store.restart(QUEUE, offset(10))
    assert asyncio.run(store.commit())
    assert world.requests == [("a", {0: 10}, True), ("a", {1: 60}, False)]


def test_reset_is_adopted_once_and_earlier_progress_forgotten() -> None:
    world = World()
    store = store_in(world)
    store.begin(QUEUE, offset(50), offset(40))
    assert store.reset(QUEUE, offset(3), 2)
    assert not store.reset(QUEUE, offset(3), 2)
    assert not store.reset(QUEUE, offset(9), 1), "an older one came late"
    assert not store.reset(OTHER, offset(3), 2), "another member's queue"
    assert asyncio.run(store.commit())
    assert world.requests == [], "the broker has it"
    store.update(QUEUE, offset(4))
    world.kept[QUEUE], world.versions[QUEUE] = 3, 2
    assert asyncio.run(store.commit())
    assert world.told_versions == [2]


def test_unnoticed_reset_is_learnt_from_the_refusal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    resets: list[tuple[MessageQueue, int]] = []
    store = RemoteOffsetStore(
        world,
        group="g",
        client_id="c",
        timeout_s=1,
        on_reset=lambda queue, at: resets.append((queue, at)),
    )
    store.begin(QUEUE, offset(50), offset(40))
    world.kept[QUEUE], world.versions[QUEUE] = 3, 1
    assert not asyncio.run(store.commit())
    assert resets == [(QUEUE, 3)]
    assert asyncio.run(store.commit()), "it is at 3 now, as the broker has it"
    store.update(QUEUE, offset(4))
    assert asyncio.run(store.commit())
    assert world.kept[QUEUE] == 4
    assert len(caplog.messages) == 1
    assert "offset reset queue=t@a:0 group=g from=50 to=3 version=1" in caplog.text


def test_refusal_for_a_released_queue_moves_no_offset() -> None:
    world = World()
    resets: list[MessageQueue] = []
    store = RemoteOffsetStore(
        world,
        group="g",
        client_id="c",
        timeout_s=1,
        on_reset=lambda queue, _: resets.append(queue),
    )
    store.begin(QUEUE, offset(50), offset(40))
    world.kept[QUEUE], world.versions[QUEUE] = 3, 1
    world.before_answer.append(lambda: store.forget([QUEUE]))
    assert not asyncio.run(store.commit())
    assert not resets


def test_stale_lock_is_reported_to_its_holder() -> None:
    world = World()
    fenced: list[tuple[MessageQueue, int]] = []
    store = RemoteOffsetStore(
        world,
        group="g",
        client_id="c",
        timeout_s=1,
        token_of=lambda _: 7,
        on_fenced=lambda queue, token: fenced.append((queue, token)),
    )
    store.begin(QUEUE, offset(50), offset(40))
    world.refusal = common.Status(code=ResponseCode.NO_PERMISSION, remark="locked")
    assert not asyncio.run(store.commit())
    assert fenced == [(QUEUE, 7)]
