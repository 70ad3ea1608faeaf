import pytest

from ternmq_broker.groups.filters.filter_rules import FilterRules, PullFilter
from ternmq_broker.state.clients import ClientSession, ClientTable, GroupMembership
from ternmq_broker.state.filters import BLOOM, FilterTable
from ternmq_model.address import Address
from ternmq_model.errors import IllegalName, RefusedError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import encode_properties
from ternmq_model.response_code import ResponseCode as Code
from ternmq_model.subscription import SQL92, Subscription, parse_subscription
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_store.queues.ext_units import BitMapFilter


def clients_of(*subscriptions: Subscription) -> ClientTable:
    clients = ClientTable(broken_ms=1, silent_ms=1)
    session = ClientSession("c", "1", Address("h", 1), 0, 0)
    clients.hello(session)
    membership = GroupMembership("G", False, "", {each.topic: each for each in subscriptions})
    clients.heartbeat(session, producer_groups=(), memberships={"G": membership}, now_ms=0)
    return clients


def told(expression: str, kind: str = SQL92) -> messages.Subscription:
    return messages.Subscription(expression=expression, expression_type=kind)


@pytest.mark.parametrize(
    ("given", "code", "why"),
    [
        (told("a >"), Code.SUBSCRIPTION_PARSE_FAILED, "at the end"),
        (told(""), Code.SUBSCRIPTION_PARSE_FAILED, "empty"),
        (told("a", "REGEX"), Code.SUBSCRIPTION_PARSE_FAILED, "'REGEX'"),
        (told("||", "TAG"), Code.SUBSCRIPTION_PARSE_FAILED, "names no tag"),
        (messages.Subscription(topic="U"), Code.INVALID_PARAMETER, "'U'"),
    ],
)
def test_illegal_subscription_is_refused_with_its_code(
    given: messages.Subscription, code: Code, why: str
) -> None:
    with pytest.raises(RefusedError, match=why) as caught:
        FilterRules(clients_of(), FilterTable()).subscription_of("T", given)
    assert caught.value.code == code


def test_illegal_topic_is_named() -> None:
    with pytest.raises(IllegalName, match=r"a/b"):
        FilterRules(clients_of(), FilterTable()).subscription_of("a/b", told("*", ""))


def test_disabled_sql92_is_refused_by_name_and_tags_are_served() -> None:
    rules = FilterRules(clients_of(), FilterTable(), property_filter_enabled=False)
    with pytest.raises(RefusedError, match=r"broker\.property_filter_enabled is off") as caught:
        rules.subscription_of("T", told("a = 1"))
    assert caught.value.code == Code.SYSTEM_ERROR
    assert rules.subscription_of("T", told("x", "TAG")).tags == {"x"}


def test_condition_is_read_once_its_version_is_registered() -> None:
    table = FilterTable()
    rules = FilterRules(clients_of(), table)
    known = parse_subscription("T", "a = 1", SQL92, version_ms=5)
    with pytest.raises(RefusedError) as caught:
        rules.check_registered("G", known)
    assert caught.value.code == Code.FILTER_DATA_NOT_EXIST
    table.register(
        "G",
        [parse_subscription("T", "a = 1", SQL92, version_ms=4)],
        now_ms=10,
        log_end=PhysicalOffset(10),
    )
    with pytest.raises(RefusedError, match="version 4, not yet 5") as caught:
        rules.check_registered("G", known)
    assert caught.value.code == Code.FILTER_DATA_NOT_LATEST
    table.register("G", [known], now_ms=11, log_end=PhysicalOffset(11))
    rules.check_registered("G", known)
    rules.check_registered("G", parse_subscription("U", "tag"))


def test_tags_are_filtered_by_hash_alone() -> None:
    subscription = parse_subscription("T", "x || y")
    chosen = FilterRules(clients_of(), FilterTable()).pull_filter("G", subscription)
    assert chosen == PullFilter(subscription.codes)


def test_shorter_conditions_may_test_more_messages() -> None:
    rules = FilterRules(clients_of(), FilterTable())
    short = rules.pull_filter("", parse_subscription("T", "a = 1 AND b = 'x'", SQL92))
    assert short.record_filter is not None
    assert short.record_filter(encode_properties({"a": "1", "b": "x"}))
    assert not short.record_filter(encode_properties({"a": "1"}))
    assert 200 < short.record_filter_max <= 800
    long = rules.pull_filter("", parse_subscription("T", " OR ".join(["a=1"] * 300), SQL92))
    assert 4 <= long.record_filter_max < 10


def test_bit_maps_serve_a_condition_while_it_is_registered() -> None:
    table = FilterTable()
    rules = FilterRules(clients_of(), table, bit_maps_enabled=True)
    wanted = parse_subscription("T", "a = 1", SQL92, version_ms=1)
    assert rules.pull_filter("G", wanted).bit_map_filter is None
    table.register("G", [wanted], now_ms=50, log_end=PhysicalOffset(50))
    bits = BLOOM.bit_map(BLOOM.positions("G", "T"))
    assert rules.pull_filter("G", wanted).bit_map_filter == BitMapFilter(bits, begin=50)
    other = parse_subscription("T", "a = 2", SQL92, version_ms=1)
    assert rules.pull_filter("G", other).bit_map_filter is None
    table.register("G", [], now_ms=60, log_end=PhysicalOffset(60))
    assert rules.pull_filter("G", wanted).bit_map_filter is None
    assert FilterRules(clients_of(), table).pull_filter("G", wanted).bit_map_filter is None


def test_retry_topic_is_filtered_by_the_original_topics_rule() -> None:
    clients = clients_of(
        parse_subscription("T", "a = 1", SQL92),
        parse_subscription("U", "x || y"),
        parse_subscription("%RETRY%G", "*"),
    )
    retry = parse_subscription("%RETRY%G", "*")
    assert FilterRules(clients, FilterTable()).pull_filter("G", retry).record_filter is None
    rules = FilterRules(clients, FilterTable(), retry_filter_enabled=True)
    keep = rules.pull_filter("G", retry).record_filter
    assert keep is not None
    for properties, is_wanted in (
        ({"RETRY_TOPIC": "T", "a": "1"}, True),
        ({"RETRY_TOPIC": "T", "a": "2"}, False),
        ({"RETRY_TOPIC": "U", "TAGS": "x"}, True),
        ({"RETRY_TOPIC": "U", "TAGS": "z"}, False),
        ({"RETRY_TOPIC": "V", "TAGS": "z"}, True),
        ({"TAGS": "z"}, True),
    ):
        assert keep(encode_properties(properties)) is is_wanted
    assert rules.pull_filter("H", retry).record_filter is None
    stranger = rules.pull_filter("H", parse_subscription("%RETRY%H", "*")).record_filter
    assert stranger is not None
    assert stranger(encode_properties({"RETRY_TOPIC": "T"}))
