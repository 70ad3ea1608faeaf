"""Sends that wait enter in the order in which they began."""

import asyncio

from ternmq_producer.send.ticket_queue import Ticket, TicketQueues
from ternmq_testing.time.virtual_time import run_in_virtual_time


def test_queue_lets_one_in_after_the_other_and_forgets_who_left() -> None:
    async def main() -> None:
        queues = TicketQueues()
        assert queues.admits("A", None)
        entered: list[int] = []

        async def enter(number: int, work_s: float) -> None:
            with queues.join("A") as ticket:
                await ticket.wait()
                await asyncio.sleep(work_s)
                entered.append(number)

        tasks = [asyncio.create_task(enter(number, 3 - number)) for number in range(3)]
        await asyncio.sleep(0.1)
        assert not queues.admits("A", None)
        assert queues.admits("B", None)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        assert entered == [0, 2]
        assert queues.admits("A", None)

    run_in_virtual_time(main())


def test_second_ticket_overtakes_nobody() -> None:
    async def main() -> None:
        queues = TicketQueues()
        with queues.join("A") as first:
            assert first.is_set()
            with queues.join("A") as second:
                assert queues.admits("A", first)
                assert not queues.admits("A", second)
                assert not queues.admits("A", Ticket())

    run_in_virtual_time(main())
