import asyncio

import pytest

from ternmq_broker.storage.confirmations import Confirmations
from ternmq_model.errors import RefusedError, StoreFailed
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode as Code
from ternmq_testing.time.virtual_time import run_in_virtual_time


def test_sync_releases_all_waiters_it_covers_and_no_others() -> None:
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


def test_confirmed_offset_is_not_waited_for() -> None:
    async def main() -> None:
        confirmations = Confirmations()
        confirmations.advance(PhysicalOffset(10))
        confirmations.advance(PhysicalOffset(5))
        await confirmations.wait(PhysicalOffset(10))

    run_in_virtual_time(main())


def test_failing_disk_fails_current_and_later_waiters() -> None:
    async def main() -> None:
        failure: OSError | None = None
        confirmations = Confirmations(lambda: failure)
        confirmations.advance(PhysicalOffset(10))
        waiting = confirmations.wait(PhysicalOffset(20))
        failure = OSError("no disk")
        confirmations.advance(PhysicalOffset(20))
        assert not confirmations.is_safe(PhysicalOffset(10))
        for future in (waiting, confirmations.wait(PhysicalOffset(10))):
            with pytest.raises(StoreFailed, match="the store failed: no disk"):
                await future
        with pytest.raises(StoreFailed, match="no disk"):
            confirmations.check()

    run_in_virtual_time(main())


def test_cancelled_waiter_does_not_disturb_others() -> None:
    async def main() -> None:
        confirmations = Confirmations()
        waiting = confirmations.wait(PhysicalOffset(20))
        waiting.cancel()
        other = confirmations.wait(PhysicalOffset(20))
        confirmations.advance(PhysicalOffset(20))
        await asyncio.wait_for(other, 1)

    run_in_virtual_time(main())


def test_released_waiter_learns_whether_enough_slaves_have_its_record() -> None:
    async def main() -> None:
        confirmations = Confirmations()
        confirmations.replicated(PhysicalOffset(10), local=PhysicalOffset(30))
        waiting = [confirmations.wait(PhysicalOffset(offset)) for offset in (10, 20, 30)]
        confirmations.advance(PhysicalOffset(20))
        assert [future.done() for future in waiting] == [True, True, False]
        assert waiting[0].result() is None
        assert waiting[1].result() is Code.SLAVE_NOT_AVAILABLE
        assert confirmations.reached(PhysicalOffset(20))
        assert not confirmations.is_safe(PhysicalOffset(20))
        assert await confirmations.wait(PhysicalOffset(15)) is Code.SLAVE_NOT_AVAILABLE
        confirmations.replicated(PhysicalOffset(30), local=PhysicalOffset(30))
        assert confirmations.is_safe(PhysicalOffset(20))
        confirmations.advance(PhysicalOffset(30))
        assert waiting[2].result() is None

    run_in_virtual_time(main())


def test_lateness_is_blamed_on_disk_or_slaves() -> None:
    confirmations = Confirmations()
    confirmations.advance(PhysicalOffset(10))
    assert confirmations.late(PhysicalOffset(20)) is Code.FLUSH_DISK_TIMEOUT
    confirmations.replicated(PhysicalOffset(10), local=PhysicalOffset(20))
    assert confirmations.late(PhysicalOffset(20)) is Code.FLUSH_SLAVE_TIMEOUT
    assert confirmations.late(PhysicalOffset(21)) is Code.FLUSH_DISK_TIMEOUT
    # Confirmed: what it still waits for is its topic's file.
    assert confirmations.late(PhysicalOffset(10)) is Code.FLUSH_DISK_TIMEOUT


def test_fence_stops_acknowledgement_from_that_instant() -> None:
    async def main() -> None:
        failure: OSError | None = None
        confirmations = Confirmations(lambda: failure)
        confirmations.advance(PhysicalOffset(10))
        waiting = confirmations.wait(PhysicalOffset(20))
        confirmations.check()
        assert confirmations.refusal(needs_replicas=True) is None
        confirmations.fence("epoch 2000 is known")
        confirmations.fence("another reason")
        confirmations.advance(PhysicalOffset(30))
        failure = OSError("no disk")
        confirmations.check_store()
        assert not confirmations.is_safe(PhysicalOffset(5))
        for future in (waiting, confirmations.wait(PhysicalOffset(5))):
            with pytest.raises(RefusedError, match="epoch 2000 is known") as caught:
                await future
            assert caught.value.may_have_happened
            assert caught.value.retryable
        refused = confirmations.refusal(needs_replicas=False)
        assert refused is not None
        assert "epoch 2000" in refused.remark
        assert not refused.may_have_happened

    run_in_virtual_time(main())


def test_missing_replicas_refuse_only_writes_that_need_them() -> None:
    confirmations = Confirmations()
    confirmations.are_replicas_enough = False
    assert confirmations.refusal(needs_replicas=False) is None
    refused = confirmations.refusal(needs_replicas=True)
    assert refused is not None
    assert refused.code == Code.SERVICE_NOT_AVAILABLE
    assert refused.retryable
    assert not refused.may_have_happened
