import pytest

from ternmq_broker.groups.filters.filter_rules import FilterRules
from ternmq_broker.pull.rules import PullRules, outcome_of
from ternmq_broker.state.clients import ClientSession, ClientTable, GroupMembership
from ternmq_broker.state.filters import FilterTable
from ternmq_broker.state.groups import GroupTable
from ternmq_broker.state.topics import TopicTable
from ternmq_model.address import Address
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import IllegalName, RefusedError
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.response_code import ResponseCode as Code
from ternmq_model.route import Permission, TopicConfig
from ternmq_model.subscription import parse_subscription
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_store.queues.read_request import ReadStatus as Status
from ternmq_store.read.message_selection import without_reading

CASES = [
    # status, offset, least, end, appended -> code, next
    (Status.FOUND, 5, 0, 10, 10, Code.SUCCESS, 7),
    (Status.NO_MATCHED_MESSAGE, 5, 0, 10, 10, Code.PULL_RETRY_IMMEDIATELY, 7),
    (Status.MESSAGE_WAS_REMOVING, 5, 0, 10, 10, Code.PULL_RETRY_IMMEDIATELY, 7),
    (Status.OFFSET_FOUND_NULL, 5, 0, 10, 10, Code.PULL_NOT_FOUND, 7),
    (Status.OFFSET_OVERFLOW_ONE, 10, 0, 10, 10, Code.PULL_NOT_FOUND, 7),
    (Status.OFFSET_TOO_SMALL, 1, 3, 10, 10, Code.PULL_OFFSET_MOVED, 7),
    (Status.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, 0, Code.PULL_NOT_FOUND, 0),
    (Status.NO_MATCHED_LOGIC_QUEUE, 4, 0, 0, 0, Code.PULL_OFFSET_MOVED, 0),
    (Status.NO_MESSAGE_IN_QUEUE, 0, 0, 0, 0, Code.PULL_NOT_FOUND, 0),
    (Status.NO_MESSAGE_IN_QUEUE, 4, 0, 0, 0, Code.PULL_OFFSET_MOVED, 0),
]


@pytest.mark.parametrize("case", CASES)
def test_every_status_of_the_store_has_rocketmqs_code(
    case: tuple[Status, int, int, int, int, Code, int],
) -> None:
    status, offset, least, end, appended, code, next_offset = case
    assert outcome(status, offset, least, end, appended) == (code, next_offset)


def outcome(
    status: Status,
    offset: int,
    least: int,
    end: int,
    appended: int,
    *,
    is_slave: bool = False,
    is_chosen: bool = False,
) -> tuple[Code, QueueOffset]:
    return outcome_of(
        status,
        offset=QueueOffset(offset),
        next_offset=QueueOffset(7),
        min_offset=QueueOffset(least),
        max_offset=QueueOffset(end),
        end_offset=QueueOffset(appended),
        is_slave=is_slave,
        is_chosen=is_chosen,
    )


SLAVE_CASES = [
    (Status.FOUND, 5, 0, 10, Code.SUCCESS, 7),
    (Status.OFFSET_OVERFLOW_ONE, 10, 0, 10, Code.PULL_NOT_FOUND, 7),
    (Status.OFFSET_OVERFLOW_BADLY, 99, 0, 10, Code.PULL_RETRY_IMMEDIATELY, 99),
    (Status.OFFSET_OVERFLOW_BADLY, 99, 3, 10, Code.PULL_RETRY_IMMEDIATELY, 99),
    (Status.OFFSET_TOO_SMALL, 1, 3, 10, Code.PULL_RETRY_IMMEDIATELY, 1),
    (Status.NO_MESSAGE_IN_QUEUE, 4, 0, 0, Code.PULL_RETRY_IMMEDIATELY, 4),
    (Status.NO_MATCHED_LOGIC_QUEUE, 4, 0, 0, Code.PULL_RETRY_IMMEDIATELY, 4),
    (Status.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, Code.PULL_NOT_FOUND, 0),
]


@pytest.mark.parametrize("case", SLAVE_CASES)
def test_slave_corrects_nothing_and_refers_to_the_master(
    case: tuple[Status, int, int, int, Code, int],
) -> None:
    status, offset, least, end, code, next_offset = case
    assert outcome(status, offset, least, end, end, is_slave=True) == (code, next_offset)


QUEUES = [
    # The queue's first offset and its end, None without a queue; what is asked for -> what facts
    # of RocketMQ 5 have for it, code and where to go on; "read" where messages decide.
    (None, 0, Code.PULL_NOT_FOUND, 0),
    (None, 7, Code.PULL_OFFSET_MOVED, 0),
    ((0, 0), 0, Code.PULL_NOT_FOUND, 0),
    ((0, 0), 7, Code.PULL_OFFSET_MOVED, 0),
    ((0, 10), -1, Code.PULL_OFFSET_MOVED, 0),
    ((0, 10), 0, "read", 0),
    ((0, 10), 9, "read", 9),
    ((0, 10), 10, Code.PULL_NOT_FOUND, 10),
    ((0, 10), 11, Code.PULL_OFFSET_MOVED, 10),
    ((3, 10), 0, Code.PULL_OFFSET_MOVED, 3),
    ((3, 10), 2, Code.PULL_OFFSET_MOVED, 3),
    ((3, 10), 3, "read", 3),
    ((3, 10), 10, Code.PULL_NOT_FOUND, 10),
    ((3, 10), 11, Code.PULL_OFFSET_MOVED, 10),
    ((3, 10), (1 << 63) - 1, Code.PULL_OFFSET_MOVED, 10),
    ((10, 10), 10, Code.PULL_NOT_FOUND, 10),
    ((10, 10), 9, Code.PULL_OFFSET_MOVED, 10),
]


@pytest.mark.parametrize(("bounds", "offset", "code", "next_offset"), QUEUES)
def test_every_offset_of_a_queue_has_its_code_and_correction(
    bounds: tuple[int, int] | None, offset: int, code: Code | str, next_offset: int
) -> None:
    first, end = bounds or (0, 0)
    within = None if bounds is None else (QueueOffset(first), QueueOffset(end))
    status, corrected = without_reading(QueueOffset(offset), within)
    if code == "read":
        assert (status, corrected) == (Status.FOUND, next_offset)
        return
    found = outcome_of(
        status,
        offset=QueueOffset(offset),
        next_offset=corrected,
        min_offset=QueueOffset(first),
        max_offset=QueueOffset(end),
        end_offset=QueueOffset(end),
        is_chosen=True,
    )
    assert found == (code, next_offset)


@pytest.mark.parametrize("least", [0, 3])
def test_offset_far_beyond_the_end_skips_messages_only_where_it_was_chosen(least: int) -> None:
    status = Status.OFFSET_OVERFLOW_BADLY
    assert outcome(status, 99, least, 10, 10, is_chosen=True) == (Code.PULL_OFFSET_MOVED, 10)
    assert outcome(status, 99, least, 10, 10) == (Code.PULL_OFFSET_MOVED, least)


@pytest.mark.parametrize("status", [Status.OFFSET_OVERFLOW_BADLY, Status.NO_MESSAGE_IN_QUEUE])
def test_offset_of_stored_but_unreadable_message_is_not_beyond_the_end(
    status: Status,
) -> None:
    assert outcome(status, 12, 0, 10, 12) == (Code.PULL_NOT_FOUND, 12)


def rules(**permissions: int) -> PullRules:
    topics = TopicTable(DataVersion(0))
    topics.log_end = lambda: PhysicalOffset(700)
    for topic, value in permissions.items():
        topics.put(TopicConfig(topic, 2, 2, Permission(value)), now_ms=1)
    clients = ClientTable(broken_ms=1, silent_ms=1)
    session = ClientSession("c", "1", Address("h", 1), 0, 0)
    clients.hello(session)
    membership = GroupMembership("G", False, "", {"T": parse_subscription("T", "a")})
    clients.heartbeat(session, producer_groups=(), memberships={"G": membership}, now_ms=0)
    filters = FilterRules(clients, FilterTable())
    return PullRules(topics, GroupTable(DataVersion(0)), clients, filters)


@pytest.mark.parametrize(
    ("topic", "queue_id", "code"),
    [
        ("Unknown", 0, Code.TOPIC_NOT_EXIST),
        ("WriteOnly", 0, Code.NO_PERMISSION),
        ("T", 2, Code.INVALID_PARAMETER),
        ("T", -1, Code.INVALID_PARAMETER),
    ],
)
def test_unreadable_queue_is_refused_by_topic(topic: str, queue_id: int, code: Code) -> None:
    with pytest.raises(RefusedError, match=topic) as caught:
        rules(T=6, WriteOnly=2).check_queue(topic, queue_id)
    assert caught.value.code == code


def test_topic_created_after_it_was_known_is_no_longer_there() -> None:
    checked = rules(T=6)
    for known in (700, 701):
        checked.check_created("T", known)
    with pytest.raises(RefusedError, match="'T' was deleted and created again") as caught:
        checked.check_created("T", 699)
    assert caught.value.code == Code.TOPIC_NOT_EXIST


def test_illegal_topic_is_reported_as_such() -> None:
    with pytest.raises(IllegalName, match=r"\.\./x"):
        rules().check_queue("../x", 0)


def test_group_is_optional_and_otherwise_created() -> None:
    some = rules()
    some.check_group("", now_ms=1)
    some.check_group("New", now_ms=1)
    with pytest.raises(IllegalName, match="no good"):
        some.check_group("no good", now_ms=1)


def test_subscription_of_the_request_precedes_the_members() -> None:
    some = rules(T=6, U=6)
    given = messages.Subscription(topic="T", expression="x || y")
    assert some.subscription("", "T", given).tags == {"x", "y"}
    assert some.subscription("G", "T", None).tags == {"a"}
    for group, topic in (("G", "U"), ("Nobody", "T")):
        with pytest.raises(RefusedError) as caught:
            some.subscription(group, topic, None)
        assert caught.value.code == Code.SUBSCRIPTION_NOT_EXIST


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (messages.Subscription(topic="U"), Code.INVALID_PARAMETER),
        (messages.Subscription(expression_type="SQL92"), Code.SUBSCRIPTION_PARSE_FAILED),
        (messages.Subscription(expression="||"), Code.SUBSCRIPTION_PARSE_FAILED),
    ],
)
def test_unservable_subscription_is_refused(given: messages.Subscription, code: Code) -> None:
    with pytest.raises(RefusedError) as caught:
        rules(T=6).subscription("G", "T", given)
    assert caught.value.code == code
