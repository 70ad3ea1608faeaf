"""Dispatch of messages to workers."""

import asyncio

import pytest

from ternmq_consumer.process_queue.queue_locks import Lease
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time
from tests.support.handed_out import World, offsets


def test_queues_take_turns() -> None:
    async def main() -> None:
        world = World(take_max=2)
        first, second = world.queue(0), world.queue(1)
        world.add(first, 4)
        world.add(second, 4)
        works = [await world.dispatcher.next() for _ in range(4)]
        assert [request.assigned for request in works] == [first, second, first, second]
        assert [offsets(request) for request in works] == [[0, 1], [0, 1], [2, 3], [2, 3]]

    run_in_virtual_time(main())


def test_short_queue_is_shared_among_the_workers() -> None:
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


def test_worker_cancelled_when_woken_passes_the_work_on() -> None:
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


def test_worker_cancelled_just_before_others_are_woken_ends_alone() -> None:
    async def main() -> None:
        world = World()
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(world.dispatcher.next())
            second = tasks.create_task(world.dispatcher.next())
            await asyncio.sleep(1)
            first.cancel()
            world.add(world.queue(), 1)
        assert first.cancelled()
        assert offsets(second.result()) == [0]

    run_in_virtual_time(main())


def test_unfinished_messages_come_again_after_the_pause() -> None:
    async def main() -> None:
        world = World()
        queue = world.queue()
        world.add(queue, 3)
        request = await world.dispatcher.next()
        world.dispatcher.finish(request, request.handout.messages[1:2])
        world.dispatcher.again(request, 5)
        world.add(queue, 1)
        assert offsets(await world.dispatcher.next()) == [3]
        begin_s = asyncio.get_running_loop().time()
        again = await world.dispatcher.next()
        assert asyncio.get_running_loop().time() == pytest.approx(begin_s + 5)
        assert offsets(again) == [1]
        assert again.handout.attempts == 1

    run_in_virtual_time(main())


def test_orderly_queue_hands_out_nothing_before_its_last_hand_out_finishes() -> None:
    async def main() -> None:
        world = World(take_max=2, in_order=True)
        queue = world.queue()
        world.add(queue, 4)
        request = await world.dispatcher.next()
        world.add(queue, 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await world.dispatcher.next()
        world.dispatcher.finish(request, request.handout.messages[1:])
        world.dispatcher.again(request, 1)
        again = await world.dispatcher.next()
        assert offsets(again) == [1]
        world.dispatcher.finish(again)
        assert offsets(await world.dispatcher.next()) == [2, 3]

    run_in_virtual_time(main())


def test_dropped_queue_hands_out_nothing() -> None:
    async def main() -> None:
        world = World(take_max=1)
        queue, other = world.queue(0), world.queue(1)
        world.add(queue, 3)
        failed = await world.dispatcher.next()
        world.dispatcher.finish(failed, failed.handout.messages)
        world.dispatcher.again(failed, 5)
        running = await world.dispatcher.next()
        async with asyncio.TaskGroup() as tasks:
            idle = tasks.create_task(queue.idle())
            await asyncio.sleep(1)
            queue.stop()
            assert not idle.done()
            world.dispatcher.finish(running)
        await asyncio.sleep(10)
        world.add(other, 1)
        request = await world.dispatcher.next()
        assert request.assigned is other
        assert queue.in_hand.commit_offset == 0

    run_in_virtual_time(main())


def test_repeatedly_failing_listener_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        world = World()
        world.add(world.queue(), 1)
        request = await world.dispatcher.next()
        for error in [ValueError("first"), *[ValueError("later")] * 8, KeyError("other")]:
            world.dispatcher.report(request, request.handout.messages, error)
        assert [record.exc_info is not None for record in caplog.records] == [True, True]
        await asyncio.sleep(11)
        world.dispatcher.report(request, request.handout.messages, ValueError("again"))

    run_in_virtual_time(main())
    assert [record.getMessage().split(" queue=")[0] for record in caplog.records] == [
        "listener failed",
        "listener failed",
        "listener failed again err=ValueError count=8",
        "listener failed",
    ]


def test_queue_is_handed_out_only_while_its_lock_is_confirmed() -> None:
    async def main() -> None:
        clock = VirtualClock()
        world = World(take_max=2, in_order=True)
        lease = Lease(clock, token=1, asked_at_ms=clock.monotonic_ms())
        queue = world.queue(lease=lease)
        await asyncio.sleep(9)
        world.add(queue, 4)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await world.dispatcher.next()
        lease.asked_at_ms = clock.monotonic_ms()
        world.dispatcher.offer(queue)
        request = await world.dispatcher.next()
        # What comes again waits for the lock, too.
        world.dispatcher.finish(request, request.handout.messages)
        world.dispatcher.again(request, 60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(90):
                await world.dispatcher.next()
        lease.asked_at_ms = clock.monotonic_ms()
        async with asyncio.timeout(1):
            assert offsets(await world.dispatcher.next()) == [0, 1]

    run_in_virtual_time(main())


def test_messages_behind_an_abandoned_call_go_to_another_worker() -> None:
    async def main() -> None:
        world = World(take_max=5)
        queue = world.queue()
        request = await world.request(5, queue=queue)
        world.dispatcher.pass_on(request, 2)
        rest = await world.dispatcher.next()
        assert offsets(request) == [0, 1]
        assert offsets(rest) == [2, 3, 4]
        world.dispatcher.finish(rest)
        assert queue.in_hand.commit_offset == 0
        world.dispatcher.finish(request)
        assert queue.in_hand.commit_offset == 5
        assert queue.in_hand.running == 0

    run_in_virtual_time(main())
