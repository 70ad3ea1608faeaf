"""Sends that wait enter in the order in which they began."""

import asyncio

from ternmq_producer.send.ticket_queue import Lines, Place
from tests.support.virtual_time import run_in_virtual_time


def test_line_lets_one_in_after_the_other_and_forgets_who_left() -> None:
    async def main() -> None:
        lines = Lines()
        assert lines.lets_in("A", None)
        entered: list[int] = []

        async def enter(number: int, work_s: float) -> None:
            with lines.join("A") as place:
                await place.wait()
                await asyncio.sleep(work_s)
                entered.append(number)

        tasks = [asyncio.create_task(enter(number, 3 - number)) for number in range(3)]
        await asyncio.sleep(0.1)
        assert not lines.lets_in("A", None)
        assert lines.lets_in("B", None)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        assert entered == [0, 2]
        assert lines.lets_in("A", None)

    run_in_virtual_time(main())


def test_second_in_line_overtakes_nobody() -> None:
    async def main() -> None:
        lines = Lines()
        with lines.join("A") as first:
            assert first.is_set()
            with lines.join("A") as second:
                assert lines.lets_in("A", first)
                assert not lines.lets_in("A", second)
                assert not lines.lets_in("A", Place())

    run_in_virtual_time(main())
