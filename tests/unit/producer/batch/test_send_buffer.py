"""The bounded memory of a producer."""

import asyncio

import pytest

from ternmq_producer.batch.send_buffer import SendBuffer
from ternmq_testing.time.virtual_time import run_in_virtual_time


def test_space_is_given_in_the_order_of_requests() -> None:
    async def main() -> None:
        buffer = SendBuffer(100)
        assert buffer.take_now(60)
        order: list[int] = []

        async def take(number: int, size: int) -> None:
            await buffer.take(size)
            order.append(number)

        tasks = [asyncio.ensure_future(take(*each)) for each in ((1, 80), (2, 20), (3, 5))]
        await asyncio.sleep(0)
        assert not buffer.take_now(1)  # others wait
        buffer.give_back(60)
        await asyncio.gather(*tasks[:2])
        assert order == [1, 2]
        buffer.give_back(80)
        await tasks[2]
        assert buffer.used_bytes == 25

    run_in_virtual_time(main())


def test_message_larger_than_the_buffer_is_admitted_when_it_is_empty() -> None:
    async def main() -> None:
        buffer = SendBuffer(100)
        assert buffer.take_now(1)
        task = asyncio.ensure_future(buffer.take(500))
        await asyncio.sleep(0)
        assert not task.done()
        buffer.give_back(1)
        await task
        assert buffer.used_bytes == 500

    run_in_virtual_time(main())


def test_departing_waiter_takes_nothing_and_lets_others_in() -> None:
    async def main() -> None:
        buffer = SendBuffer(100)
        assert buffer.take_now(50)
        large = asyncio.ensure_future(buffer.take(90))
        small = asyncio.ensure_future(buffer.take(10))
        await asyncio.sleep(0)
        large.cancel()
        with pytest.raises(asyncio.CancelledError):
            await large
        await small
        assert buffer.used_bytes == 60
        late = asyncio.ensure_future(buffer.take(90))
        await asyncio.sleep(0)
        buffer.give_back(60)  # room comes in the same moment as the cancellation
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        assert buffer.used_bytes == 0

    run_in_virtual_time(main())


def test_waiting_for_an_empty_buffer_lasts_until_the_last_byte() -> None:
    async def main() -> None:
        buffer = SendBuffer(100)
        await buffer.emptied()
        buffer.take_now(10)
        task = asyncio.ensure_future(buffer.emptied())
        await asyncio.sleep(0)
        assert not task.done()
        buffer.give_back(10)
        await task

    run_in_virtual_time(main())
