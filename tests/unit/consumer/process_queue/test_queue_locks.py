"""The locks of queues as their holder knows them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from ternmq_consumer.process_queue.queue_locks import QueueLocks, is_trusted
from ternmq_model.errors import ConnectionLost, RefusedError, refusal
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import LOCK_QUEUES, UNLOCK_QUEUES
from ternmq_runtime.service import OwnedTasks
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time

QUEUES = [MessageQueue("t", "b", number) for number in range(3)]


class Broker:
    """A broker that locks what it is told to, and a client that knows it."""

    def __init__(self) -> None:
        self.tokens: dict[int, int] = {0: 10, 1: 11, 2: 12}
        self.unlocked: list[tuple[int, int]] = []
        self.asked: list[list[tuple[int, int]]] = []
        self.takes_s = 0.0
        self.slow: set[str] = set()
        self.is_down = False
        self.refusal: RefusedError | None = None
        self.lost: list[MessageQueue] = []
        self.renewed: list[MessageQueue] = []

    async def broker(self, broker_name: str, broker_id: int = 0) -> Connection:
        if broker_name in self.slow:
            await asyncio.sleep(3)
            raise ConnectionLost("no answer")
        return cast("Connection", self)

    def forget(self, broker_name: str, connection: Connection, broker_id: int = 0) -> None:
        raise AssertionError("does not happen here")

    async def call(self, rpc: object, request: Any, *, timeout_s: float) -> Any:
        await asyncio.sleep(self.takes_s)
        if self.is_down:
            raise ConnectionLost("cut")
        if self.refusal is not None:
            raise self.refusal
        told = [(each.queue_id, each.token) for each in request.queues]
        if rpc is UNLOCK_QUEUES:
            self.unlocked += told
            return groups.UnlockQueuesReply()
        assert rpc is LOCK_QUEUES
        self.asked.append(told)
        locked = [
            groups.QueueLock(topic="t", queue_id=queue_id, token=self.tokens[queue_id])
            for queue_id, _ in told
            if queue_id in self.tokens
        ]
        return groups.LockQueuesReply(locked=locked, lease_ms=30_000)


async def renewed(locks: QueueLocks, *, within_s: float = 0.001) -> None:
    """Look once which locks are due, and wait for the answers."""
    await locks.renew()
    await asyncio.sleep(within_s)


def play(test: Callable[[Broker, QueueLocks], Awaitable[None]]) -> None:
    async def main() -> None:
        broker = Broker()
        async with OwnedTasks() as tasks:
            locks = QueueLocks(
                broker,
                VirtualClock(),
                tasks,
                group="g",
                client_id="me",
                timeout_s=3,
                on_lost=broker.lost.append,
                on_renewed=broker.renewed.append,
            )
            await test(broker, locks)

    run_in_virtual_time(main())


@pytest.mark.parametrize(("age_ms", "trusted"), [(0, True), (8_000, True), (8_001, False)])
def test_lock_is_trusted_for_eight_seconds(age_ms: int, trusted: bool) -> None:
    assert is_trusted(1_000, 1_000 + age_ms) is trusted


def test_locks_refused_by_the_broker_are_not_held() -> None:
    async def test(broker: Broker, locks: QueueLocks) -> None:
        del broker.tokens[1]
        leases = await locks.take(QUEUES)
        assert {queue.queue_id: lease.token for queue, lease in leases.items()} == {0: 10, 2: 12}
        assert [locks.token(queue) for queue in QUEUES] == [10, 0, 12]
        broker.is_down = True
        assert await locks.take([QUEUES[1]]) == {}

    play(test)


def test_trust_counts_from_the_request_and_not_its_answer() -> None:
    async def test(broker: Broker, locks: QueueLocks) -> None:
        broker.takes_s = 2
        leases = await locks.take(QUEUES[:1])
        lease = leases[QUEUES[0]]
        await asyncio.sleep(5.9)
        assert lease.holds
        await asyncio.sleep(0.2)
        assert not lease.holds

    play(test)


def test_lock_is_renewed_after_five_seconds_and_then_each_second() -> None:
    async def test(broker: Broker, locks: QueueLocks) -> None:
        leases = await locks.take(QUEUES[:1])
        for _ in range(4):
            await asyncio.sleep(1)
            await renewed(locks)
        assert len(broker.asked) == 1
        broker.is_down = True
        for _ in range(10):
            await asyncio.sleep(1)
            await renewed(locks)
        assert not leases[QUEUES[0]].holds
        assert not broker.lost
        broker.is_down = False
        await asyncio.sleep(1)
        await renewed(locks)
        assert broker.asked[1:] == [[(0, 10)]]
        assert leases[QUEUES[0]].holds
        assert broker.renewed == QUEUES[:1]

    play(test)


@pytest.mark.parametrize("token", [None, 99], ids=["another holder", "a new lock"])
def test_lock_someone_else_may_have_held_is_lost(token: int | None) -> None:
    async def test(broker: Broker, locks: QueueLocks) -> None:
        leases = await locks.take(QUEUES[:1])
        del broker.tokens[0]
        if token is not None:
            broker.tokens[0] = token
        await asyncio.sleep(5)
        await renewed(locks)
        assert broker.lost == QUEUES[:1]
        assert leases[QUEUES[0]].is_lost
        assert not leases[QUEUES[0]].holds
        assert locks.token(QUEUES[0]) == 0

    play(test)


def test_refusal_of_an_older_token_loses_no_newer_lock() -> None:
    async def test(broker: Broker, locks: QueueLocks) -> None:
        await locks.take(QUEUES[:1])
        locks.lose(QUEUES[0], 9)
        assert not broker.lost
        locks.lose(QUEUES[0], 10)
        assert broker.lost == QUEUES[:1]

    play(test)


def test_answer_for_a_released_queue_is_ignored() -> None:
    async def test(broker: Broker, locks: QueueLocks) -> None:
        await locks.take(QUEUES[:2])
        broker.takes_s = 1
        await asyncio.sleep(5)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(renewed(locks, within_s=2))
            await asyncio.sleep(0.5)
            locks.forget(QUEUES[0])
        assert locks.token(QUEUES[0]) == 0
        assert locks.token(QUEUES[1]) == 11
        assert not broker.lost

    play(test)


def test_first_refusal_to_lock_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def test(broker: Broker, locks: QueueLocks) -> None:
        caplog.set_level("INFO", "ternmq_consumer.process_queue.queue_locks")
        codes = [ResponseCode.GO_AWAY, *[ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST] * 3]
        for code in codes:
            broker.refusal = refusal(code, "no")
            assert await locks.take(QUEUES) == {}
        assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]

    play(test)


def test_busy_queue_is_unlocked_afterwards() -> None:
    async def test(broker: Broker, locks: QueueLocks) -> None:
        leases = await locks.take(QUEUES[:2])
        busy = True
        locks.give_back_later(QUEUES[0], lambda: busy)
        await locks.give_back(QUEUES[:2])
        assert broker.unlocked == [(1, 11)]
        assert not leases[QUEUES[0]].holds
        await renewed(locks)
        assert broker.unlocked == [(1, 11)]
        busy = False
        await renewed(locks)
        assert broker.unlocked == [(1, 11), (0, 10)]
        assert len(broker.asked) == 1

    play(test)


def test_silent_broker_does_not_keep_others_from_being_asked() -> None:
    async def test(broker: Broker, locks: QueueLocks) -> None:
        other = MessageQueue("t", "other", 0)
        leases = await locks.take([QUEUES[0], other])
        broker.slow = {"b"}
        for _ in range(60):
            await asyncio.sleep(1)
            await locks.renew()
            assert leases[other].holds
        assert not leases[QUEUES[0]].holds

    play(test)
