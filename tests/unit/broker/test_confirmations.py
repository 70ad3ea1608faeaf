import asyncio

import pytest

from ternmq_broker.confirmations import Confirmations
from ternmq_model.errors import StoreFailed
from ternmq_model.offsets import PhysicalOffset
from tests.support.virtual_time import run_in_virtual_time


def test_one_sync_releases_all_it_covers_and_nobody_else() -> None:
    async def main() -> None:
        confirmations = Confirmations()
        first, third, second = (confirmations.wait(PhysicalOffset(n)) for n in (10, 30, 20))
        confirmations.advance(PhysicalOffset(20))
        assert [future.done() for future in (first, second, third)] == [True, True, False]
        assert confirmations.reached(PhysicalOffset(20))
        assert not confirmations.reached(PhysicalOffset(21))
        confirmations.advance(PhysicalOffset(30))
        await third

    run_in_virtual_time(main())


def test_what_is_safe_already_is_not_waited_for() -> None:
    async def main() -> None:
        confirmations = Confirmations()
        confirmations.advance(PhysicalOffset(10))
        confirmations.advance(PhysicalOffset(5))
        await confirmations.wait(PhysicalOffset(10))

    run_in_virtual_time(main())


def test_a_failing_disk_fails_who_waits_now_and_later() -> None:
    async def main() -> None:
        confirmations = Confirmations()
        confirmations.advance(PhysicalOffset(10))
        waiting = confirmations.wait(PhysicalOffset(20))
        confirmations.fail("no disk")
        for future in (waiting, confirmations.wait(PhysicalOffset(20))):
            with pytest.raises(StoreFailed, match="no disk"):
                await future
        await confirmations.wait(PhysicalOffset(10))

    run_in_virtual_time(main())


def test_a_sender_that_went_away_is_no_trouble() -> None:
    async def main() -> None:
        confirmations = Confirmations()
        waiting = confirmations.wait(PhysicalOffset(20))
        waiting.cancel()
        other = confirmations.wait(PhysicalOffset(20))
        confirmations.advance(PhysicalOffset(20))
        await asyncio.wait_for(other, 1)

    run_in_virtual_time(main())
