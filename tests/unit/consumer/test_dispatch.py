"""Who gets which messages next."""

import asyncio
from typing import cast

import pytest

from ternmq_consumer.assigned_queue import AssignedQueue
from ternmq_consumer.dispatch import Dispatcher, Work
from ternmq_consumer.flow_control import Window
from ternmq_consumer.statistics import Counters
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import parse_subscription
from tests.support.virtual_time import run_in_virtual_time


class Record:
    """What a dispatcher sees of a message."""

    def __init__(self, offset: int) -> None:
        self.queue_offset = QueueOffset(offset)
        self.record_bytes = 10


class World:
    """A dispatcher and the queues that it serves."""

    def __init__(self, take_max: int = 10, share_among: int = 1, *, in_order: bool = False) -> None:
        self.dispatcher = Dispatcher(
            Counters(), take_max=take_max, share_among=share_among, in_order=in_order, retry_s=5
        )

    def queue(self, queue_id: int = 0) -> AssignedQueue:
        def on_restart(queue: MessageQueue, offset: QueueOffset) -> None:
            raise AssertionError("does not happen here")

        def on_gone(queue: AssignedQueue) -> None:
            raise AssertionError("does not happen here")

        return AssignedQueue(
            MessageQueue("t", "b", queue_id),
            parse_subscription("t", "*"),
            QueueOffset(0),
            Window(100, 1000),
            on_ready=self.dispatcher.offer,
            on_restart=on_restart,
            on_gone=on_gone,
        )

    def add(self, queue: AssignedQueue, count: int) -> None:
        begin = queue.in_hand.next_offset
        records = cast("list[StoredMessage]", [Record(begin + place) for place in range(count)])
        queue.in_hand.add(records, 10 * count, QueueOffset(begin + count))
        self.dispatcher.offer(queue)


def offsets(work: Work) -> list[int]:
    return [message.queue_offset for message in work.handout.messages]


def test_queues_take_turns() -> None:
    async def main() -> None:
        world = World(take_max=2)
        first, second = world.queue(0), world.queue(1)
        world.add(first, 4)
        world.add(second, 4)
        works = [await world.dispatcher.next() for _ in range(4)]
        assert [work.assigned for work in works] == [first, second, first, second]
        assert [offsets(work) for work in works] == [[0, 1], [0, 1], [2, 3], [2, 3]]

    run_in_virtual_time(main())


def test_a_short_queue_is_shared_among_the_workers() -> None:
    async def main() -> None:
        world = World(take_max=64, share_among=4)
        world.add(world.queue(), 8)
        sizes = [len(offsets(await world.dispatcher.next())) for _ in range(5)]
        assert sizes == [2, 2, 1, 1, 1]

    run_in_virtual_time(main())


def test_every_waiting_worker_is_woken_while_there_is_work() -> None:
    async def main() -> None:
        world = World(take_max=1)
        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(world.dispatcher.next()) for _ in range(3)]
            await asyncio.sleep(1)
            world.add(world.queue(), 3)
        assert sorted(offsets(worker.result())[0] for worker in workers) == [0, 1, 2]

    run_in_virtual_time(main())


def test_a_worker_that_is_cancelled_when_woken_passes_the_work_on() -> None:
    async def main() -> None:
        world = World()
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(world.dispatcher.next())
            second = tasks.create_task(world.dispatcher.next())
            await asyncio.sleep(1)
            world.add(world.queue(), 1)
            first.cancel()
        assert first.cancelled()
        assert offsets(second.result()) == [0]

    run_in_virtual_time(main())


def test_what_is_left_unfinished_comes_again_after_the_pause() -> None:
    async def main() -> None:
        world = World()
        queue = world.queue()
        world.add(queue, 3)
        work = await world.dispatcher.next()
        world.dispatcher.done(work, work.handout.messages[1:2])
        world.add(queue, 1)
        assert offsets(await world.dispatcher.next()) == [3]
        begin_s = asyncio.get_running_loop().time()
        again = await world.dispatcher.next()
        assert asyncio.get_running_loop().time() == pytest.approx(begin_s + 5)
        assert offsets(again) == [1]
        assert again.handout.attempts == 1

    run_in_virtual_time(main())


def test_in_order_nothing_is_handed_out_before_the_last_stretch_is_finished() -> None:
    async def main() -> None:
        world = World(take_max=2, in_order=True)
        queue = world.queue()
        world.add(queue, 4)
        work = await world.dispatcher.next()
        world.add(queue, 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await world.dispatcher.next()
        world.dispatcher.done(work, work.handout.messages[1:])
        again = await world.dispatcher.next()
        assert offsets(again) == [1]
        world.dispatcher.done(again, [])
        assert offsets(await world.dispatcher.next()) == [2, 3]

    run_in_virtual_time(main())


def test_nothing_of_a_dropped_queue_is_handed_out() -> None:
    async def main() -> None:
        world = World(take_max=1)
        queue, other = world.queue(0), world.queue(1)
        world.add(queue, 3)
        failed = await world.dispatcher.next()
        world.dispatcher.done(failed, failed.handout.messages)
        running = await world.dispatcher.next()
        async with asyncio.TaskGroup() as tasks:
            idle = tasks.create_task(queue.idle())
            await asyncio.sleep(1)
            queue.stop()
            assert not idle.done()
            world.dispatcher.done(running, [])
        await asyncio.sleep(10)
        world.add(other, 1)
        work = await world.dispatcher.next()
        assert work.assigned is other
        assert queue.in_hand.commit_offset == 0

    run_in_virtual_time(main())


def test_a_listener_that_fails_again_and_again_fills_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        world = World()
        world.add(world.queue(), 1)
        work = await world.dispatcher.next()
        for error in [ValueError("first"), *[ValueError("later")] * 8, KeyError("other")]:
            world.dispatcher.report(work, work.handout.messages, error)
        assert [record.exc_info is not None for record in caplog.records] == [True, True]
        await asyncio.sleep(11)
        world.dispatcher.report(work, work.handout.messages, ValueError("again"))

    run_in_virtual_time(main())
    assert [record.getMessage().split(" queue=")[0] for record in caplog.records] == [
        "listener failed",
        "listener failed",
        "listener failed again error=ValueError times=8",
        "listener failed",
    ]
