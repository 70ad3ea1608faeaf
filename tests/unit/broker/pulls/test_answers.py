import pytest

from ternmq_broker.groups import GroupTable
from ternmq_broker.pulls import MovedEvents, OffsetMoved, PullAnswers
from ternmq_model.data_version import DataVersion
from ternmq_model.group_settings import GroupSettings
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode as Code
from ternmq_store.message_store import MessageStore
from ternmq_store.reading.reader import Limits, ReadRequest, ReadResult, ReadStatus


class Events(MovedEvents):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[OffsetMoved] = []

    def add(self, event: OffsetMoved) -> None:
        self.told.append(event)


class Store(MessageStore):
    """A store whose queues end at 10."""

    def __init__(self) -> None:
        """Open nothing."""

    def next_offset(self, topic: str, queue_id: int) -> QueueOffset:
        return QueueOffset(10)


def answers(events: Events, *, is_slave: bool = False, is_enabled: bool = False) -> PullAnswers:
    groups = GroupTable(DataVersion(0))
    groups.put(GroupSettings("G", broker_id=2, broker_id_when_slow=3), now_ms=1)
    return PullAnswers(
        Store(), groups, events, slave_read_enabled=lambda: is_enabled, is_slave=is_slave
    )


def request(offset: int, group: str = "G") -> ReadRequest:
    most = Limits(1, 1)
    return ReadRequest(
        topic="T", queue_id=1, offset=QueueOffset(offset), hot=most, cold=most, group=group
    )


BEYOND = ReadResult(
    ReadStatus.OFFSET_OVERFLOW_BADLY, QueueOffset(10), QueueOffset(3), QueueOffset(10)
)


def test_a_correction_is_told_with_who_asked_for_what() -> None:
    events = Events()
    assert answers(events).outcome(request(99), BEYOND) == (Code.PULL_OFFSET_MOVED, 10)
    assert events.told == [OffsetMoved("G", "T", 1, 99, 10)]


def test_nobody_is_told_of_a_reader_without_a_group_or_at_a_slave() -> None:
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
def test_a_groups_settings_say_whom_to_ask(
    group: str, is_enabled: bool, is_far_behind: bool, suggested: int
) -> None:
    some = answers(Events(), is_enabled=is_enabled)
    assert some.suggested_broker_id(group, is_far_behind=is_far_behind) == suggested


def test_what_a_slave_cannot_correct_is_its_masters() -> None:
    slave, master = answers(Events(), is_slave=True), answers(Events())
    beyond = slave.outcome(request(99), BEYOND)
    assert beyond == (Code.PULL_RETRY_IMMEDIATELY, 99)
    assert slave.is_masters(request(99), beyond)
    passed = ReadResult(
        ReadStatus.NO_MATCHED_MESSAGE, QueueOffset(9), QueueOffset(3), QueueOffset(10)
    )
    assert not slave.is_masters(request(4), slave.outcome(request(4), passed))
    assert not master.is_masters(request(99), master.outcome(request(99), BEYOND))
