import asyncio
from typing import Any

import pytest

from ternmq_broker.replication.role.epoch_poll import EpochAnswer, EpochPollResult
from ternmq_broker.replication.role.membership import EndReason
from ternmq_broker.replication.role.start_policy import MemberAnswer, NameServerAnswer
from ternmq_broker.state.epochs import Epoch
from ternmq_model.address import Address
from ternmq_model.epochs import EPOCH_STEP_MAX
from ternmq_model.errors import RefusedError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode as Code
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.followed import EPOCHS, NOBODY, OWN_ID, probed, reigning, soon
from tests.support.replicas import log_of
from tests.support.stores import SMALL


def test_new_slave_gets_the_whole_log_and_then_every_append() -> None:
    async def main() -> None:
        async with reigning() as master:
            for number in range(40):
                master.append(bytes(100 + 60 * number))
            slave = await master.slave()
            accepted = await slave.accepted()
            assert accepted.status.code == Code.SUCCESS
            assert accepted.store_id == "store"
            assert [(each.number, each.start) for each in accepted.epochs] == list(EPOCHS)
            assert accepted.start == 0
            assert not accepted.HasField("cut")
            assert accepted.log_file_bytes == SMALL.commit_log_file_bytes
            assert accepted.master_role == "sync_master"
            assert accepted.in_sync_replicas == 2
            assert master.replicas.member.state.record.is_replicated
            end = master.store.max_physical
            assert end > 5 * SMALL.commit_log_file_bytes
            await slave.take(end)
            assert slave.log == log_of(master.files, end)
            end = master.append(b"more")
            piece = await soon(slave.piece())
            assert slave.log == log_of(master.files, end)
            assert piece.log_end == end
            assert piece.stored_at_ms == master.store.last_stored_at_ms
            await slave.leave()

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"cluster": "Other"}, "cluster DefaultCluster"),
        ({"broker_name": "b"}, "this is broker a"),
        ({"broker_id": 0}, "above 0"),
        ({"broker_id": OWN_ID}, "reserved for the master"),
        ({"log_file_bytes": 4096}, "commit_log_file_bytes"),
        ({"store_id": "foreign", "log_end": 100, "epochs": EPOCHS}, "of store foreign"),
        ({"store_id": "", "log_end": 100}, "of store unknown"),
        ({"epochs": (Epoch(2, PhysicalOffset(0)), Epoch(1, PhysicalOffset(5)))}, "is impossible"),
        ({"epochs": (Epoch(1, PhysicalOffset(5)), Epoch(2, PhysicalOffset(0)))}, "is impossible"),
        ({"log_start": 5, "log_end": 4, "store_id": "store"}, "is impossible"),
        ({"store_id": "foreign", "log_end": 100, "highest_epoch": 99}, "of store foreign"),
        ({"highest_epoch": (1 << 63) - 1}, "is rejected"),
        ({"highest_epoch": -1}, "is impossible"),
        ({"epochs": (Epoch((1 << 62) + 1, PhysicalOffset(0)),)}, "is rejected"),
    ],
)
def test_foreign_or_malformed_slaves_are_refused(fields: dict[str, Any], why: str) -> None:
    async def main() -> None:
        async with reigning() as master:
            master.append(bytes(200))
            slave = await master.slave(**fields)
            accepted = await slave.accepted()
            assert accepted.status.code != Code.SUCCESS
            assert why in accepted.status.remark
            assert await slave.stream.read() is None
            assert not master.replicas.in_sync.followers
            assert not master.ends
            assert not master.replicas.member.state.record.is_replicated
            await slave.leave()

    run_in_virtual_time(main())


@pytest.mark.parametrize("word", ["x" * 256, "two\nlines"])
@pytest.mark.parametrize("field", ["cluster", "store_id", "incarnation", "flush_mode"])
def test_slave_fields_that_could_flood_or_forge_logs_are_not_logged(
    field: str, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with reigning() as master:
            fields: dict[str, Any] = {field: word}
            slave = await master.slave(**fields)
            with pytest.raises(RefusedError, match="at most 255 characters"):
                await slave.accepted()
            await slave.leave()

    run_in_virtual_time(main())
    assert not [record for record in caplog.records if word in record.getMessage()]


def test_slave_resumes_where_its_log_ends() -> None:
    async def main() -> None:
        async with reigning() as master:
            half = master.append(bytes(200), bytes(300))
            end = master.append(bytes(400))
            log = log_of(master.files, half)
            slave = await master.slave(log_end=half, epochs=EPOCHS)
            accepted = await probed(slave, log)
            assert accepted.status.code == Code.SUCCESS
            assert accepted.start == half
            assert not accepted.HasField("cut")
            slave.log += log
            await slave.take(end)
            assert slave.log == log_of(master.files, end)
            await slave.leave()

    run_in_virtual_time(main())


def test_slave_with_a_diverged_log_is_told_where_to_cut() -> None:
    async def main() -> None:
        async with reigning(epochs=(Epoch(1, PhysicalOffset(0)),)) as master:
            common = master.append(bytes(200))
            master.append(bytes(300))
        files = master.files
        epochs = (Epoch(1, PhysicalOffset(0)), Epoch(3, common))
        async with reigning(files=files, epochs=epochs) as master:
            log = log_of(files, common) + bytes(500)
            theirs = (Epoch(1, PhysicalOffset(0)), Epoch(2, common))
            slave = await master.slave(log_end=common + 500, epochs=theirs, highest_epoch=2)
            accepted = await probed(slave, log)
            assert accepted.status.code == Code.SUCCESS
            assert accepted.cut.keep_to == common
            assert not accepted.cut.starts_over
            assert await slave.stream.read() is None
            assert not master.replicas.in_sync.followers
            await slave.leave()

    run_in_virtual_time(main())


def test_slave_with_different_bytes_starts_over() -> None:
    async def main() -> None:
        async with reigning() as master:
            end = master.append(bytes(200))
            slave = await master.slave(log_end=end, epochs=EPOCHS)
            accepted = await probed(slave, b"x" * end)
            assert accepted.cut.starts_over
            assert accepted.cut.keep_to == 0
            await slave.leave()

    run_in_virtual_time(main())


def told(epoch: int, *, by: int | None) -> EpochPollResult:
    """Return the answer of a member, or of a NameServer, which knows of an epoch."""
    answer = NameServerAnswer(epoch)
    member = MemberAnswer(epoch, epoch, PhysicalOffset(0))
    return EpochPollResult(
        (EpochAnswer(answer if by is None else member, (Address("other", 1),), by),), ()
    )


@pytest.mark.parametrize(
    "others",
    [NOBODY, told(2, by=None), told(2, by=2), told(1000, by=1)],
    ids=["nobody", "a NameServer", "another member", "the slave itself"],
)
def test_hellos_alone_depose_no_master_and_cost_little(
    others: EpochPollResult, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with reigning(in_sync_replicas=1) as master:
            master.others = others
            for number in range(200):
                slave = await master.slave(1, host=f"s{number}", highest_epoch=3 + number)
                assert (await slave.accepted()).status.code == Code.SERVICE_NOT_AVAILABLE
                await slave.leave()
                await asyncio.sleep(0.1)
            assert not master.ends
            assert not (await master.status()).is_fenced
            assert 4 <= master.asked <= 5
            await master.confirmations.wait(master.append(bytes(100)))

    run_in_virtual_time(main())
    claims = [each for each in caplog.messages if "claimed and not confirmed" in each]
    assert 3 <= len(claims) <= 5


def test_two_slaves_that_claim_a_higher_epoch_confirm_each_other() -> None:
    async def main() -> None:
        async with reigning() as master:
            master.others = told(3, by=1)
            for broker_id in (1, 2):
                slave = await master.slave(broker_id, highest_epoch=3)
                await slave.accepted()
                await slave.leave()
            await asyncio.sleep(1.1)
            assert master.ends == [EndReason.FENCED]
            assert master.replicas.member.state.highest_epoch == 3

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    "fields",
    [
        {"highest_epoch": 1 << 62},
        {"highest_epoch": 2 + EPOCH_STEP_MAX + 1},
        {"log_end": 100, "epochs": (*EPOCHS, Epoch(1 << 61, PhysicalOffset(50)))},
    ],
)
@pytest.mark.parametrize("others", [NOBODY, told(3 * EPOCH_STEP_MAX, by=None)], ids=["", "known"])
def test_made_up_epoch_of_slave_is_refused_and_logged_and_others_are_asked(
    fields: dict[str, Any], others: EpochPollResult, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with reigning() as master:
            master.others = others
            slave = await master.slave(store_id="store", **fields)
            status = (await slave.accepted()).status
            assert status.code == Code.INVALID_PARAMETER
            assert "ternmq broker repair-epoch" in status.remark
            await asyncio.sleep(6)
            ends = [EndReason.FENCED] if others.accepted else []
            assert (master.asked, master.ends) == (1, ends)
            await slave.leave()

    run_in_virtual_time(main())
    assert "slave refused" in caplog.text


@pytest.mark.parametrize(
    "fields",
    [{"highest_epoch": 3}, {"log_end": 100, "epochs": (*EPOCHS, Epoch(1000, PhysicalOffset(50)))}],
)
@pytest.mark.parametrize("teller", [None, 2])
def test_slave_and_another_that_know_a_higher_epoch_depose_the_master(
    fields: dict[str, Any], teller: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with reigning() as master:
            master.others = told(1000, by=teller)
            slave = await master.slave(store_id="store", **fields)
            other = await master.slave(2)
            await other.accepted()
            waiting = master.confirmations.wait(PhysicalOffset(1 << 40))
            accepted = await slave.accepted()
            assert accepted.status.code == Code.SERVICE_NOT_AVAILABLE
            claimed = fields.get("highest_epoch", 1000)
            assert f"epoch {claimed} may have begun" in accepted.status.remark
            await asyncio.sleep(1.1)
            assert master.ends == [EndReason.FENCED]
            assert master.replicas.member.state.highest_epoch == 1000
            with pytest.raises(RefusedError, match="there is another one"):
                await waiting
            before = master.store.confirm_offset
            master.append(bytes(100))
            await asyncio.sleep(1)
            assert master.store.confirm_offset == before
            master.replicas.fence(1000, "again")
            assert len(master.ends) == 1
            assert (await master.status()).is_fenced
            again = await master.slave(3)
            assert "no master any more" in (await again.accepted()).status.remark
            for each in (slave, other, again):
                await each.leave()

    run_in_virtual_time(main())
    assert "master deposed epoch=2 higher=1000 known_from=other:1" in caplog.messages


def test_closing_broker_takes_no_slave() -> None:
    async def main() -> None:
        async with reigning() as master:
            master.admission.close()
            slave = await master.slave()
            assert "closing" in (await slave.accepted()).status.remark
            await slave.leave()

    run_in_virtual_time(main())


def test_repeated_refusals_of_a_slave_are_logged_once_per_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with reigning() as master:
            for cluster in ("Other", "Other", "Another", "Other"):
                slave = await master.slave(cluster=cluster)
                await slave.accepted()
                await slave.leave()
            good = await master.slave()
            await good.accepted()
            await good.leave()

    run_in_virtual_time(main())
    said = [record.getMessage() for record in caplog.records]
    assert sum("slave refused broker_id=1" in line for line in said) == 3
