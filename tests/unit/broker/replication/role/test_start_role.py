import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ternmq_broker.config import BrokerConfig, BrokerRole
from ternmq_broker.replication.role.epoch_poll import EpochAnswer, EpochPollResult
from ternmq_broker.replication.role.start_policy import (
    Answer,
    MemberAnswer,
    NameServerAnswer,
    OwnState,
    StartRole,
)
from ternmq_broker.replication.role.start_role import (
    decide,
    is_master,
    own_of,
    registered_epoch,
    registered_id,
    replicas_needed,
    role_as_master,
)
from ternmq_broker.state.epochs import Epoch
from ternmq_broker.state.replication_record import ReplicationRecord
from ternmq_model.address import Address
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time
from tests.support.stores import SMALL

EPOCHS = (Epoch(3, PhysicalOffset(0)),)
MASTER = BrokerConfig()
SLAVE = BrokerConfig(broker_id=1, role=BrokerRole.SLAVE)


def own(**changes: Any) -> OwnState:
    """Return what a replicated master of epoch 3 knows that stopped in order."""
    known: dict[str, Any] = {
        "broker_id": 0,
        "is_master": True,
        "is_replicated": True,
        "is_empty": False,
        "was_clean": True,
        "epochs": EPOCHS,
        "log_end": PhysicalOffset(100),
    }
    return OwnState(**(known | changes))


class Others:
    """Answer as told, one list after the other, the last one again and again."""

    def __init__(self, *answers: Sequence[Answer]) -> None:
        self.times_s: list[float] = []
        self._answers = list(answers)

    async def __call__(self) -> EpochPollResult:
        self.times_s.append(asyncio.get_running_loop().time())
        answers = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return EpochPollResult(
            tuple(EpochAnswer(each, (Address("ns", 1),)) for each in answers), ("ns:2",)
        )


@pytest.mark.parametrize(
    ("known", "start"),
    [(own(is_replicated=False), StartRole.MASTER), (own(is_master=False), StartRole.SLAVE)],
)
def test_unreplicated_master_and_slave_start_without_asking(
    known: OwnState, start: StartRole
) -> None:
    async def main() -> None:
        others = Others([NameServerAnswer(9)])
        decision = await decide(known, others, name="a")
        assert decision.start is start
        assert not others.times_s

    run_in_virtual_time(main())


def test_master_asks_each_second_until_answered_and_logs_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        others = Others([], [NameServerAnswer(None)], [], [NameServerAnswer(3)])
        decision = await decide(own(), others, name="a")
        assert (decision.start, decision.begins) == (StartRole.MASTER, None)
        assert others.times_s == [0, 1, 2, 3]

    run_in_virtual_time(main())
    assert caplog.text.count("--force-master") == 1


def test_higher_epoch_makes_a_master_a_slave() -> None:
    async def main() -> None:
        decision = await decide(own(), Others([NameServerAnswer(4)]), name="a")
        assert decision.start is StartRole.SLAVE

    run_in_virtual_time(main())


def test_force_replaces_answers_but_gives_way_to_a_member() -> None:
    async def main() -> None:
        others = Others([])
        decision = await decide(own(was_clean=False), others, name="a", is_forced=True)
        assert (decision.start, decision.begins) == (StartRole.MASTER, 4)
        assert len(others.times_s) == 1
        member = MemberAnswer(4, 4, PhysicalOffset(0))
        decision = await decide(own(), Others([member]), name="a", is_forced=True)
        assert decision.start is StartRole.SLAVE

    run_in_virtual_time(main())


def test_force_makes_a_slave_the_master_of_its_own_epoch() -> None:
    async def main() -> None:
        known = own(is_master=False, broker_id=1)
        decision = await decide(known, Others([NameServerAnswer(3)]), name="a", is_forced=True)
        assert (decision.start, decision.begins) == (StartRole.MASTER, 1_001_000)

    run_in_virtual_time(main())


def test_promoted_member_starts_without_asking_again() -> None:
    async def main() -> None:
        others = Others([])
        decision = await decide(own(), others, name="a", is_promoted=True)
        assert (decision.start, decision.begins) == (StartRole.MASTER, None)
        assert not others.times_s

    run_in_virtual_time(main())


def test_promoted_member_that_heard_of_higher_epoch_asks_again() -> None:
    async def main() -> None:
        others = Others([NameServerAnswer(9)])
        decision = await decide(own(highest=9), others, name="a", is_promoted=True)
        assert (decision.start, len(others.times_s)) == (StartRole.SLAVE, 1)

    run_in_virtual_time(main())


def test_new_broker_asks_once_and_needs_no_answer() -> None:
    async def main() -> None:
        others = Others([])
        new = own(is_replicated=False, is_empty=True, epochs=())
        decision = await decide(new, others, name="a")
        assert (decision.start, decision.begins) == (StartRole.MASTER, 1)
        assert len(others.times_s) == 1

    run_in_virtual_time(main())


def test_stored_role_overrides_configured_role() -> None:
    assert is_master(MASTER, ReplicationRecord())
    assert not is_master(MASTER, ReplicationRecord(is_master=False))
    assert not is_master(SLAVE, ReplicationRecord())
    assert is_master(SLAVE, ReplicationRecord(is_master=True))


def test_registered_id_follows_the_role() -> None:
    assert registered_id(MASTER, is_slave=False) == registered_id(SLAVE, is_slave=False) == 0
    assert registered_id(MASTER, is_slave=True) == 100
    assert registered_id(SLAVE, is_slave=True) == 1


def test_slave_that_never_followed_has_no_epoch_of_the_name() -> None:
    kept = ReplicationRecord(epochs=(Epoch(2, PhysicalOffset(0)),))
    assert registered_epoch(kept, is_slave=True) == 0
    assert registered_epoch(kept, is_slave=False) == 2
    assert registered_epoch(replace(kept, is_master=False), is_slave=True) == 2


def test_promoted_slave_adopts_its_masters_role_unless_configured() -> None:
    sync = ReplicationRecord(master_role="sync_master", in_sync_replicas=3)
    assert role_as_master(SLAVE, ReplicationRecord()) is BrokerRole.ASYNC_MASTER
    assert replicas_needed(SLAVE, ReplicationRecord()) == 1
    assert role_as_master(SLAVE, sync) is BrokerRole.SYNC_MASTER
    assert replicas_needed(SLAVE, sync) == 3
    told = BrokerConfig(broker_id=1, role=BrokerRole.SYNC_MASTER)
    assert role_as_master(told, ReplicationRecord()) is BrokerRole.SYNC_MASTER
    assert replicas_needed(told, sync) == 2


def test_own_knowledge_comes_from_settings_state_and_store() -> None:
    async def main() -> None:
        files, root = MemoryFileSystem(), Path("/broker")
        store = MessageStore.open(root, SMALL, FlushMode.SYNC, files, VirtualClock())
        known = own_of(
            MASTER, ReplicationRecord(epochs=EPOCHS, highest_epoch=5, is_replicated=True), store
        )
        assert (known.is_master, known.is_replicated, known.is_empty) == (True, True, True)
        assert (known.was_clean, known.epochs, known.highest) == (True, EPOCHS, 5)
        assert not own_of(MASTER, ReplicationRecord(is_unclean=True), store).was_clean
        sync = BrokerConfig(role=BrokerRole.SYNC_MASTER, flush_mode=FlushMode.ASYNC)
        known = own_of(sync, ReplicationRecord(is_unclean=True), store)
        assert known.is_replicated
        assert known.may_lack_confirmed
        alone = BrokerConfig(role=BrokerRole.SYNC_MASTER, nameservers=())
        assert not own_of(alone, ReplicationRecord(), store).is_replicated
        store.close()

    run_in_virtual_time(main())
