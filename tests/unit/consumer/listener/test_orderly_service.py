"""Outcome of messages that are handled in order."""

import asyncio
from typing import cast

import pytest

from ternmq_consumer.listener.consume_request import ConsumeRequest
from ternmq_consumer.listener.orderly_service import UNLIMITED, OrderlyConsumeService, is_dead
from ternmq_consumer.process_queue.queue_locks import Lease
from ternmq_consumer.retry.send_back_outbox import SendBackBatch, SendBackOutbox
from ternmq_model.queue import MessageQueue
from ternmq_model.redelivered_message import RedeliveredMessage
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time
from tests.support.handed_out import World, message_at, of_offsets, offsets


class Scene:
    """An orderly consumer with one locked queue, and a broker that answers when it is told to."""

    def __init__(self, *, retries_max: int = UNLIMITED) -> None:
        clock = VirtualClock()
        self.world = World(in_order=True)
        self.lease = Lease(clock, token=7, asked_at_ms=clock.monotonic_ms())
        self.queue = self.world.queue(lease=self.lease)
        self.batches: list[SendBackBatch] = []
        self.fenced: list[tuple[MessageQueue, int]] = []
        self.service = OrderlyConsumeService(
            self.world.dispatcher,
            self.world.counters,
            send_backs=cast("SendBackOutbox", self),
            suspend_s=1,
            retries_max=retries_max,
            on_fenced=lambda queue, token: self.fenced.append((queue, token)),
        )

    def add(self, batch: SendBackBatch) -> None:
        self.batches.append(batch)

    def confirm(self) -> None:
        """Let the broker confirm the lock."""
        self.lease.asked_at_ms = VirtualClock().monotonic_ms()

    async def request(self, count: int) -> ConsumeRequest:
        return await self.world.request(count, queue=self.queue)

    async def again(self) -> tuple[float, list[int], list[int]]:
        """Return after how long something comes again, what, and after how many attempts."""
        begin_s = asyncio.get_running_loop().time()
        request = await self.world.dispatcher.next()
        took_s = asyncio.get_running_loop().time() - begin_s
        return took_s, offsets(request), [each.reconsume_times for each in request.handout.messages]


@pytest.mark.parametrize(
    ("tries", "level", "retries_max", "dead"),
    [
        (1000, 0, UNLIMITED, False),
        (2, 0, 3, False),
        (3, 0, 3, True),
        (0, 0, 0, True),
        (0, -1, UNLIMITED, True),
        (0, 5, UNLIMITED, False),
    ],
)
def test_message_is_dead_when_asked_or_retried_often_enough(
    tries: int, level: int, retries_max: int, dead: bool
) -> None:
    message = RedeliveredMessage.of(message_at(0), reconsume_times=tries)
    assert is_dead(message, level, retries_max) is dead


def test_failed_message_alone_gets_another_attempt() -> None:
    async def main() -> None:
        scene = Scene()
        request = await scene.request(4)
        messages = request.handout.messages
        request.fail(messages[1], 0)
        request.unreached = messages[2:]
        scene.service.take(request)
        assert scene.queue.in_hand.commit_offset == 1
        assert await scene.again() == (1, [1, 2, 3], [1, 0, 0])

    run_in_virtual_time(main())


def test_answer_sets_how_long_the_queue_rests() -> None:
    async def main() -> None:
        scene = Scene()
        request = await scene.request(1)
        request.fail(request.handout.messages[0], 0)
        request.suspend_s = 6.5
        scene.service.take(request)
        assert await scene.again() == (6.5, [0], [1])

    run_in_virtual_time(main())


def test_messages_held_back_by_a_lapsed_lock_come_again_once_it_is_back() -> None:
    async def main() -> None:
        scene = Scene()
        request = await scene.request(3)
        request.unreached = request.handout.messages[1:]
        await asyncio.sleep(30)
        scene.service.take(request)
        asyncio.get_running_loop().call_later(4, scene.confirm)
        took_s, again, attempts = await scene.again()
        assert 4 <= took_s < 5
        assert (again, attempts) == ([1, 2], [0, 0])

    run_in_virtual_time(main())


def test_queue_waits_for_the_answer_to_a_dead_letter() -> None:
    async def main() -> None:
        scene = Scene()
        request = await scene.request(3)
        request.fail(request.handout.messages[0], -1)
        request.unreached = request.handout.messages[1:]
        scene.service.take(request)
        (batch,) = scene.batches
        assert (of_offsets(batch.messages), list(batch.levels), batch.token) == ([0], [-1], 7)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await scene.again()
        assert scene.queue.in_hand.commit_offset == 0
        batch.on_answer(batch)
        assert scene.queue.in_hand.commit_offset == 1
        assert await scene.again() == (0, [1, 2], [0, 0])

    run_in_virtual_time(main())


def test_refused_dead_letter_is_retried_and_a_stale_token_reported() -> None:
    async def main() -> None:
        scene = Scene(retries_max=0)
        request = await scene.request(2)
        request.fail(request.handout.messages[0], 0)
        request.unreached = request.handout.messages[1:]
        scene.service.take(request)
        (batch,) = scene.batches
        batch.refused = list(batch.messages)
        batch.is_fenced = True
        batch.on_answer(batch)
        assert scene.fenced == [(scene.queue.queue, 7)]
        assert scene.queue.in_hand.commit_offset == 0
        assert await scene.again() == (1, [0, 1], [1, 0])

    run_in_virtual_time(main())
