"""Outcome of messages that are handled side by side."""

import asyncio
from typing import cast

from ternmq_consumer.listener.concurrent_service import ConcurrentConsumeService
from ternmq_consumer.listener.consume_request import ConsumeRequest
from ternmq_consumer.retry.send_back_outbox import SendBackBatch, SendBackOutbox
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time
from tests.support.handed_out import World, of_offsets, offsets


class Broker:
    """Takes messages back when it is told to."""

    def __init__(self) -> None:
        self.batches: list[SendBackBatch] = []

    def add(self, batch: SendBackBatch) -> None:
        self.batches.append(batch)

    def answer(self, *refused: int) -> None:
        """Confirm the oldest batch but for these offsets."""
        batch = self.batches.pop(0)
        batch.refused += [message for message in batch.messages if message.queue_offset in refused]
        batch.on_answer(batch)


class Scene:
    """A concurrent consumer with one queue and a broker."""

    def __init__(self, *, broadcasts: bool = False) -> None:
        self.world = World()
        self.broker = Broker()
        self.queue = self.world.queue()
        self.service = ConcurrentConsumeService(
            self.world.dispatcher,
            self.world.counters,
            VirtualClock(),
            send_backs=None if broadcasts else cast("SendBackOutbox", self.broker),
            retry_s=5,
            timeout_s=900,
        )

    async def begin(self, count: int) -> ConsumeRequest:
        request = await self.world.request(count, queue=self.queue)
        self.service.begin(request)
        return request

    @property
    def committed(self) -> int:
        return self.queue.in_hand.commit_offset

    @property
    def failures(self) -> int:
        statistics = self.world.counters.statistics(0, in_hand_messages=0, in_hand_bytes=0)
        return statistics.failures


def test_failed_message_finishes_only_once_its_broker_has_confirmed() -> None:
    async def main() -> None:
        scene = Scene()
        request = await scene.begin(3)
        request.fail(request.handout.messages[1], 7)
        scene.service.take(request)
        assert scene.committed == 1
        await asyncio.sleep(3600)
        assert scene.committed == 1
        (batch,) = scene.broker.batches
        assert (of_offsets(batch.messages), batch.levels) == ([1], [7])
        scene.broker.answer()
        assert scene.committed == 3
        assert scene.queue.in_hand.running == 0

    run_in_virtual_time(main())


def test_failed_send_back_is_redelivered_after_5_s_as_another_attempt() -> None:
    async def main() -> None:
        scene = Scene()
        request = await scene.begin(4)
        for message in request.handout.messages[1:]:
            request.fail(message, 0)
        scene.service.take(request)
        scene.broker.answer(1, 3)
        assert scene.committed == 1
        begin_s = asyncio.get_running_loop().time()
        again = await scene.world.dispatcher.next()
        assert asyncio.get_running_loop().time() - begin_s == 5
        assert offsets(again) == [1, 3]
        assert [message.reconsume_times for message in again.handout.messages] == [1, 1]
        scene.service.begin(again)
        scene.service.take(again)
        assert scene.committed == 4

    run_in_virtual_time(main())


def test_dropped_queue_sends_nothing_back_and_redelivers_nothing() -> None:
    async def main() -> None:
        scene = Scene()
        first, second = await scene.begin(2), await scene.begin(2)
        first.fail(first.handout.messages[0], 0)
        second.fail(second.handout.messages[0], 0)
        scene.service.take(first)
        (batch,) = scene.broker.batches
        assert batch.is_wanted()
        scene.queue.stop()
        scene.service.take(second)
        assert len(scene.broker.batches) == 1
        assert not batch.is_wanted()
        scene.broker.answer(0)
        assert scene.committed == 0
        assert scene.queue.in_hand.running == 0

    run_in_virtual_time(main())


def test_broadcasting_consumer_counts_failures_and_goes_on() -> None:
    async def main() -> None:
        scene = Scene(broadcasts=True)
        request = await scene.begin(3)
        request.fail(request.handout.messages[1], 0)
        scene.service.take(request)
        assert scene.committed == 3
        assert scene.failures == 1
        assert not scene.broker.batches

    run_in_virtual_time(main())


async def look_for(scene: Scene, seconds: int) -> None:
    """Look every minute as long."""
    for _ in range(seconds // 60):
        await asyncio.sleep(60)
        await scene.service.check_timeouts()


def test_hanging_batch_behind_finished_ones_is_sent_back_alone() -> None:
    async def main() -> None:
        scene = Scene()
        request = await scene.begin(5)
        request.is_batch = True
        await look_for(scene, 600)
        request.index = 3
        await look_for(scene, 900)
        assert not scene.broker.batches, "each batch has the whole time"
        await look_for(scene, 60)
        (batch,) = scene.broker.batches
        assert of_offsets(batch.messages) == [3, 4]
        assert scene.committed == 3

    run_in_virtual_time(main())


def test_hanging_call_is_abandoned_and_its_late_result_ignored() -> None:
    async def main() -> None:
        scene = Scene()
        request = await scene.begin(5)
        request.fail(request.handout.messages[0], 4)
        request.index, hung = 2, request.handout.messages[2]
        await look_for(scene, 900)
        assert not scene.broker.batches
        await look_for(scene, 60)
        (batch,) = scene.broker.batches
        # What failed is said as it was said, what hangs comes after 10 s, what lies behind it was
        # never handed over.
        assert (of_offsets(batch.messages), batch.levels) == ([0, 2], [4, 3])
        assert request.is_over
        rest = await scene.world.dispatcher.next()
        assert offsets(rest) == [3, 4]
        scene.service.begin(rest)
        scene.service.take(rest)
        assert scene.committed == 0
        scene.broker.answer()
        assert scene.committed == 5
        request.fail(hung, 0)
        scene.service.take(request)
        assert scene.committed == 5
        assert scene.queue.in_hand.running == 0
        assert not scene.broker.batches

    run_in_virtual_time(main())


def test_progressing_hand_out_is_never_abandoned() -> None:
    async def main() -> None:
        scene = Scene()
        request = await scene.begin(10)
        for index in range(10):
            request.index = index
            await look_for(scene, 840)
        assert not request.is_over

    run_in_virtual_time(main())


def test_hanging_batch_is_given_up_as_a_whole() -> None:
    async def main() -> None:
        scene = Scene()
        request = await scene.begin(3)
        request.is_batch = True
        await look_for(scene, 900)
        (batch,) = scene.broker.batches
        assert (of_offsets(batch.messages), batch.levels) == ([0, 1, 2], [3, 3, 3])

    run_in_virtual_time(main())
