"""Queues of a consumer whose broker has lost the end of a queue."""

import asyncio

import pytest

from ternmq_model.offsets import QueueOffset
from tests.support.handed_out import World


@pytest.mark.parametrize(("end", "restart"), [(7, 4), (5, 4), (4, 4), (2, 2), (0, 0)])
def test_shorter_queue_continues_at_its_end_or_the_first_unfinished_message(
    end: int, restart: int
) -> None:
    async def test() -> None:
        world = World(take_max=4)
        assigned = world.queue()
        request = await world.request(10, queue=assigned)
        assigned.finish(assigned.in_hand, request.handout, [])
        assigned.on_moved(QueueOffset(end))
        assert world.restarts == [restart]
        assert assigned.in_hand.next_offset == assigned.in_hand.commit_offset == restart

    asyncio.run(test())
