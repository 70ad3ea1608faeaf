import asyncio

import pytest

from ternmq_broker.storage.ack_policy import REMARKS, AckPolicy, in_doubt
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_model.errors import RefusedError, StoreFailed, refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import STORED_CODES
from ternmq_model.response_code import ResponseCode as Code
from ternmq_testing.time.virtual_time import run_in_virtual_time

END = PhysicalOffset(100)


def ack_policy_of(
    confirmations: Confirmations, *, disk_ms: int = 5000, slaves_ms: int | None = None
) -> AckPolicy:
    return AckPolicy(
        confirmations=confirmations,
        topics_saved=lambda: None,
        sync_flush_timeout_ms=disk_ms,
        slave_timeout_ms=slaves_ms,
    )


async def outcome_of(ack_policy: AckPolicy) -> tuple[Code | None, float]:
    began_s = asyncio.get_running_loop().time()
    pending = ack_policy.begin(END)
    assert pending is not None
    return await ack_policy.outcome(pending), round(asyncio.get_running_loop().time() - began_s, 3)


def test_every_failed_outcome_has_its_remark() -> None:
    assert set(REMARKS) == STORED_CODES - {Code.SUCCESS}


def test_confirmed_record_is_not_waited_for() -> None:
    async def main() -> None:
        confirmations = Confirmations()
        confirmations.advance(END)
        assert ack_policy_of(confirmations).begin(END) is None

    run_in_virtual_time(main())


def test_record_without_enough_slaves_is_reported_at_once() -> None:
    async def main() -> None:
        confirmations = Confirmations()
        confirmations.replicated(PhysicalOffset(0), local=END)
        confirmations.advance(END)
        assert await outcome_of(ack_policy_of(confirmations)) == (Code.SLAVE_NOT_AVAILABLE, 0)
        await ack_policy_of(confirmations).wait(END)  # no error to who writes by itself

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("local", "disk_ms", "slaves_ms", "told", "after_s"),
    [
        (100, 5000, 3000, Code.FLUSH_SLAVE_TIMEOUT, 3),
        (99, 5000, 3000, Code.FLUSH_DISK_TIMEOUT, 5),
        (100, 2000, 3000, Code.FLUSH_SLAVE_TIMEOUT, 3),
        (99, 2000, 3000, Code.FLUSH_DISK_TIMEOUT, 2),
        (99, 5000, None, Code.FLUSH_DISK_TIMEOUT, 5),
    ],
)
def test_timeout_names_disk_or_slaves_as_its_cause(
    local: int, disk_ms: int, slaves_ms: int | None, told: Code, after_s: int
) -> None:
    async def main() -> None:
        confirmations = Confirmations()
        confirmations.replicated(PhysicalOffset(0), local=PhysicalOffset(local))
        ack_policy = ack_policy_of(confirmations, disk_ms=disk_ms, slaves_ms=slaves_ms)
        assert await outcome_of(ack_policy) == (told, after_s)
        with pytest.raises(RefusedError) as caught:
            await ack_policy.wait(END)
        assert caught.value.code == told
        assert caught.value.may_have_happened

    run_in_virtual_time(main())


def test_confirmation_between_disk_and_slave_timeouts_succeeds() -> None:
    async def main() -> None:
        confirmations = Confirmations()
        ack_policy = ack_policy_of(confirmations, slaves_ms=3000)
        asyncio.get_running_loop().call_later(4, confirmations.advance, END)
        assert await outcome_of(ack_policy) == (None, 4)

    run_in_virtual_time(main())


def test_store_that_failed_after_confirmation_leaves_the_answer_in_doubt() -> None:
    async def main() -> None:
        failure: OSError | None = None
        confirmations = Confirmations(lambda: failure)
        waiting = asyncio.ensure_future(ack_policy_of(confirmations).wait(END))
        await asyncio.sleep(0)
        confirmations.advance(END)
        failure = OSError("dead")  # before the one who waits runs on
        with pytest.raises(StoreFailed, match="dead") as caught:
            await waiting
        assert caught.value.may_have_happened

    run_in_virtual_time(main())


def test_fenced_master_refuses_new_records_and_leaves_waiting_ones_in_doubt() -> None:
    async def main() -> None:
        confirmations = Confirmations()
        ack_policy = ack_policy_of(confirmations)
        ack_policy.check(is_sender=True)
        asyncio.get_running_loop().call_later(1, confirmations.fence, "epoch 7 is known")
        with pytest.raises(RefusedError, match="is not known: epoch 7 is known") as caught:
            await ack_policy.wait(END)
        assert caught.value.may_have_happened
        with pytest.raises(RefusedError, match="epoch 7") as caught:
            ack_policy.check()
        assert caught.value.code == Code.SERVICE_NOT_AVAILABLE
        assert not caught.value.may_have_happened

    run_in_virtual_time(main())


def test_missing_replicas_refuse_senders_when_configured() -> None:
    confirmations = Confirmations()
    confirmations.are_replicas_enough = False
    ack_policy = AckPolicy(
        confirmations=confirmations,
        topics_saved=lambda: None,
        sync_flush_timeout_ms=1,
        refuses_without_replicas=True,
    )
    ack_policy.check()
    with pytest.raises(RefusedError, match="too few slaves"):
        ack_policy.check(is_sender=True)
    ack_policy_of(confirmations).check(is_sender=True)


def test_doubt_is_reported_whoever_raises_it() -> None:
    assert in_doubt(StoreFailed("gone")).may_have_happened
    assert in_doubt(refusal(Code.SERVICE_NOT_AVAILABLE, "other")).may_have_happened
