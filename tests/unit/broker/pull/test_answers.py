from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ternmq_broker.config import BrokerConfig
from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.pull.answers import PullAnswers
from ternmq_broker.pull.offset_moved import OffsetMovedEvent, OffsetMovedPublisher
from ternmq_broker.replication.role.membership import ReplicaView
from ternmq_broker.state.epochs import Epoch
from ternmq_broker.state.groups import GroupTable
from ternmq_broker.state.offsets import OffsetTable
from ternmq_model.data_version import DataVersion
from ternmq_model.group_settings import GroupSettings
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.response_code import ResponseCode as Code
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadResult, ReadStatus


class Events(OffsetMovedPublisher):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[OffsetMovedEvent] = []

    def add(self, event: OffsetMovedEvent) -> None:
        self.told.append(event)


def first_from(_topic: str, _queue_id: int, place: PhysicalOffset) -> QueueOffset:
    """Have every message take 100 bytes of the log."""
    return QueueOffset(place // 100)


class Store(MessageStore):
    """A store whose queues end at 10."""

    def __init__(self, dispatched: int) -> None:
        """Open nothing."""
        self._end = PhysicalOffset(dispatched)

    @property
    def dispatched_offset(self) -> PhysicalOffset:
        return self._end

    def next_offset(self, topic: str, queue_id: int) -> QueueOffset:
        return QueueOffset(10)

    searches = cast("Any", SimpleNamespace(first_from=first_from))


EPOCHS = (Epoch(1, PhysicalOffset(0)), Epoch(3, PhysicalOffset(700)))


def answers(
    events: Events,
    *,
    is_slave: bool = False,
    is_enabled: bool = False,
    slaves: Collection[int] = (1, 2, 3),
    checks: bool = False,
    dispatched: int = 1000,
    committed: int | None = None,
) -> PullAnswers:
    offsets = OffsetTable(DataVersion(0))
    if committed is not None:
        offsets.commit("G", "T", 1, QueueOffset(committed), now_ms=0)
    groups = GroupTable(DataVersion(0))
    groups.put(GroupSettings("G", broker_id=2, broker_id_when_slow=3), now_ms=1)
    place = ReplicaView(1 if is_slave else 0, epochs=EPOCHS, slaves=lambda: slaves)
    settings = BrokerConfig(slave_read_enabled=is_enabled, slave_offset_check_enabled=checks)
    return PullAnswers(
        Store(dispatched),
        groups,
        offsets,
        events,
        place,
        cast("LiveSettings", SimpleNamespace(broker=settings)),
    )


def request(offset: int, group: str = "G") -> ReadRequest:
    most = ReadLimits(1, 1)
    return ReadRequest(
        topic="T", queue_id=1, offset=QueueOffset(offset), hot=most, cold=most, group=group
    )


BEYOND = ReadResult(
    ReadStatus.OFFSET_OVERFLOW_BADLY, QueueOffset(10), QueueOffset(3), QueueOffset(10)
)


def test_correction_is_recorded_with_its_request() -> None:
    events = Events()
    assert answers(events).outcome(request(99), BEYOND) == (Code.PULL_OFFSET_MOVED, 3)
    assert events.told == [OffsetMovedEvent("G", "T", 1, 99, 3)]


@pytest.mark.parametrize(("committed", "goes_on_at"), [(7, 7), (1, 3), (12, 10)])
def test_group_beyond_the_end_goes_on_at_what_it_committed(committed: int, goes_on_at: int) -> None:
    told = answers(Events(), committed=committed).outcome(request(99), BEYOND)
    assert told == (Code.PULL_OFFSET_MOVED, goes_on_at)
    alone = answers(Events(), committed=committed).outcome(request(99, group=""), BEYOND)
    assert alone == (Code.PULL_OFFSET_MOVED, 3)
    sought = answers(Events(), committed=committed).outcome(request(99), BEYOND, is_chosen=True)
    assert sought == (Code.PULL_OFFSET_MOVED, 10)


def test_corrections_without_group_or_at_slave_create_no_event() -> None:
    events = Events()
    answers(events).outcome(request(99, group=""), BEYOND)
    answers(events, is_slave=True).outcome(request(99), BEYOND)
    assert events.told == []


@pytest.mark.parametrize(
    ("group", "is_enabled", "is_far_behind", "suggested"),
    [
        ("G", False, False, 0),
        ("G", False, True, 0),
        ("G", True, False, 2),
        ("G", True, True, 3),
        ("unknown", True, False, 0),
        ("unknown", True, True, 1),
        ("", True, True, 1),
    ],
)
def test_group_settings_suggest_the_broker_to_read_from(
    group: str, is_enabled: bool, is_far_behind: bool, suggested: int
) -> None:
    some = answers(Events(), is_enabled=is_enabled)
    assert some.suggested_broker_id(group, is_far_behind=is_far_behind) == suggested


def test_pull_a_slave_cannot_correct_goes_to_its_master() -> None:
    slave, master = answers(Events(), is_slave=True), answers(Events())
    beyond = slave.outcome(request(99), BEYOND)
    assert beyond == (Code.PULL_RETRY_IMMEDIATELY, 99)
    assert slave.is_masters(request(99), beyond)
    passed = ReadResult(
        ReadStatus.NO_MATCHED_MESSAGE, QueueOffset(9), QueueOffset(3), QueueOffset(10)
    )
    assert not slave.is_masters(request(4), slave.outcome(request(4), passed))
    assert not master.is_masters(request(99), master.outcome(request(99), BEYOND))


@pytest.mark.parametrize(
    ("slaves", "is_far_behind", "suggested"),
    [((), True, 0), ((), False, 0), ((5, 4), True, 4), ((5, 4), False, 4), ((3,), True, 3)],
)
def test_readers_are_sent_only_to_slaves_that_follow(
    slaves: Collection[int], is_far_behind: bool, suggested: int
) -> None:
    some = answers(Events(), is_enabled=True, slaves=slaves)
    assert some.suggested_broker_id("G", is_far_behind=is_far_behind) == suggested


def test_slave_keeps_lagging_readers_and_sends_others_to_their_groups_broker() -> None:
    slave = answers(Events(), is_slave=True, is_enabled=True, slaves=())
    assert slave.suggested_broker_id("G", is_far_behind=True) == 1
    assert slave.suggested_broker_id("G", is_far_behind=False) == 2
    assert slave.suggested_broker_id("unknown", is_far_behind=False) == 0
    disabled = answers(Events(), is_slave=True)
    assert disabled.suggested_broker_id("G", is_far_behind=True) == 0


def test_offset_checking_slave_corrects_and_stores_no_event() -> None:
    events = Events()
    slave = answers(events, is_slave=True, checks=True)
    outcome = slave.outcome(request(99), BEYOND)
    assert outcome == (Code.PULL_OFFSET_MOVED, 3)
    assert not slave.is_masters(request(99), outcome)
    assert events.told == []


@pytest.mark.parametrize(
    ("offset", "epoch", "goes_on_at"),
    [
        (99, 0, None),
        (99, 3, None),
        (99, 4, None),
        (7, 1, None),
        (8, 1, 7),
        (99, 2, 7),
    ],
)
def test_position_from_past_leadership_ends_where_next_one_began(
    offset: int, epoch: int, goes_on_at: int | None
) -> None:
    events = Events()
    found = answers(events).goes_on_at("G", "T", 1, QueueOffset(offset), epoch)
    assert found == goes_on_at
    assert len(events.told) == (goes_on_at is not None)
    slave = answers(events, is_slave=True)
    assert slave.goes_on_at("G", "T", 1, QueueOffset(offset), epoch) == goes_on_at


def test_slave_corrects_position_once_it_has_all_of_past_leadership() -> None:
    slave = answers(Events(), is_slave=True, dispatched=699)
    assert slave.goes_on_at("G", "T", 1, QueueOffset(99), 1) is None
    slave = answers(Events(), is_slave=True, dispatched=700)
    assert slave.goes_on_at("G", "T", 1, QueueOffset(99), 1) == 7
