"""Where records lie before they come into their own queue."""

from dataclasses import replace

import pytest

from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_broker.storage.system_topic_routing import RoutingRules, delayed, half, route, timed
from ternmq_model.delay import DELAY_MS_MAX, tick_up
from ternmq_model.errors import RefusedError
from ternmq_model.record.format import FLAG_COMPRESSED, FLAG_PREPARED
from ternmq_model.response_code import ResponseCode
from tests.support.records import BORN_HOST

NOW_MS = 1_700_000_000_001
RULES = RoutingRules(now_ms=NOW_MS)


def message(**properties: str) -> InternalRecord:
    return InternalRecord(
        topic="flights",
        queue_id=3,
        body=b"body",
        properties={"TAGS": "late", **properties},
        born_at_ms=1,
        born_host=BORN_HOST,
    )


def test_plain_record_stays_as_it_is() -> None:
    plain = message()
    assert route(plain, RULES) is plain


@pytest.mark.parametrize(
    ("text", "level"), [("1", 1), ("+3", 3), ("18", 18), ("19", 18), ("99999999", 18)]
)
def test_delay_level_is_followed_and_capped(text: str, level: int) -> None:
    form = route(message(DELAY=text), RULES)
    assert (form.topic, form.queue_id) == ("SCHEDULE_TOPIC_XXXX", level - 1)
    assert form.properties == {
        "TAGS": "late",
        "DELAY": str(level),
        "REAL_TOPIC": "flights",
        "REAL_QID": "3",
    }
    assert form == delayed(message(), level)


@pytest.mark.parametrize("text", ["0", "-1"])
def test_unknown_delay_level_delays_nothing(text: str) -> None:
    plain = message(DELAY=text)
    assert route(plain, RULES) is plain


def test_delay_level_precedes_time_and_transaction_precedes_both() -> None:
    both = message(DELAY="2", TIMER_DELAY_MS="500")
    assert route(both, RULES) == delayed(message(), 2)
    all_three = message(
        DELAY="2", TIMER_DELIVER_MS="5", TRAN_MSG="True", PGROUP="payers", UNIQ_KEY="AB"
    )
    form = route(all_three, RULES)
    assert (form.topic, form.queue_id) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert form.properties == {
        "TAGS": "late",
        "TRAN_MSG": "True",
        "PGROUP": "payers",
        "UNIQ_KEY": "AB",
        "__transactionId__": "AB",
        "REAL_TOPIC": "flights",
        "REAL_QID": "3",
    }


def test_plain_message_is_not_routed_as_transaction() -> None:
    plain = message(TRAN_MSG="false")
    assert route(plain, RULES) is plain


@pytest.mark.parametrize("told", ["AB", "flights+AB"])
def test_cancelling_message_waits_with_topic_and_key_as_rocketmq_compares_them(told: str) -> None:
    form = route(message(TIMER_DELIVER_MS=str(NOW_MS + 99), TIMER_DEL_UNIQKEY=told), RULES)
    assert form.topic == "rmq_sys_wheel_timer"
    assert form.properties["TIMER_DEL_UNIQKEY"] == "flights+AB"


def test_half_message_goes_to_the_half_topic() -> None:
    record = InternalRecord(
        topic="flights",
        queue_id=0,
        body=b"",
        properties={},
        born_at_ms=1,
        born_host=BORN_HOST,
        sys_flag=FLAG_PREPARED | FLAG_COMPRESSED,
    )
    assert half(record).sys_flag == FLAG_COMPRESSED


@pytest.mark.parametrize(
    ("name", "value", "due_ms"),
    [
        ("TIMER_DELAY_SEC", 2, NOW_MS + 2099),
        ("TIMER_DELAY_MS", 99, NOW_MS + 99),
        ("TIMER_DELAY_MS", 100, NOW_MS + 199),
        ("TIMER_DELIVER_MS", NOW_MS + 1, NOW_MS + 99),
        ("TIMER_DELIVER_MS", NOW_MS + 99, NOW_MS + 99),
        ("TIMER_DELIVER_MS", NOW_MS + DELAY_MS_MAX, NOW_MS + DELAY_MS_MAX + 99),
    ],
)
def test_time_is_rounded_up_to_its_tick(name: str, value: int, due_ms: int) -> None:
    form = route(message(**{name: str(value)}), RULES)
    assert (form.topic, form.queue_id) == ("rmq_sys_wheel_timer", 0)
    assert form.properties == {
        "TAGS": "late",
        name: str(value),
        "TIMER_OUT_MS": str(due_ms),
        "REAL_TOPIC": "flights",
        "REAL_QID": "3",
    }
    assert form == timed(message(**{name: str(value)}), due_ms)
    assert tick_up(due_ms) == due_ms


@pytest.mark.parametrize(
    ("name", "value"),
    [("TIMER_DELAY_SEC", 0), ("TIMER_DELAY_MS", -5), ("TIMER_DELIVER_MS", NOW_MS)],
)
def test_past_time_is_now(name: str, value: int) -> None:
    late = message(**{name: str(value)})
    assert route(late, RULES) is late


def test_delays_in_seconds_precede_milliseconds_and_times() -> None:
    form = route(message(TIMER_DELIVER_MS="1", TIMER_DELAY_MS="5", TIMER_DELAY_SEC="60"), RULES)
    assert form.properties["TIMER_OUT_MS"] == str(tick_up(NOW_MS + 60_000))


@pytest.mark.parametrize(
    ("properties", "rules", "code", "says"),
    [
        ({"DELAY": "soon"}, RULES, ResponseCode.MESSAGE_ILLEGAL, "'DELAY'='soon'"),
        ({"DELAY": "³"}, RULES, ResponseCode.MESSAGE_ILLEGAL, "'DELAY'"),
        ({"TIMER_DELAY_MS": "1e3"}, RULES, ResponseCode.MESSAGE_ILLEGAL, "'TIMER_DELAY_MS'"),
        (
            {"TIMER_DELIVER_MS": str(NOW_MS + DELAY_MS_MAX + 1)},
            RULES,
            ResponseCode.MESSAGE_ILLEGAL,
            "at most 3 days",
        ),
        (
            {"TIMER_DELAY_SEC": str(3 * 86_400 + 1)},
            RULES,
            ResponseCode.MESSAGE_ILLEGAL,
            "'TIMER_DELAY_SEC'=259201",
        ),
        (
            {"TIMER_DELAY_MS": "5"},
            RoutingRules(now_ms=NOW_MS, timer_enabled=False),
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "broker.timer_enabled",
        ),
        (
            {"TIMER_DELAY_MS": "5"},
            RoutingRules(now_ms=NOW_MS, timer_is_full=True),
            ResponseCode.FLOW_CONTROL,
            "broker.timer_pending_max",
        ),
        ({"TIMER_DEL_UNIQKEY": "AB"}, RULES, ResponseCode.MESSAGE_ILLEGAL, "without the time"),
        (
            {"TIMER_DEL_UNIQKEY": "AB", "TIMER_DELIVER_MS": "1"},
            RULES,
            ResponseCode.MESSAGE_ILLEGAL,
            "has passed",
        ),
        ({"TRAN_MSG": "true"}, RULES, ResponseCode.MESSAGE_ILLEGAL, "'PGROUP'"),
    ],
)
def test_illegal_delay_properties_are_refused_by_name(
    properties: dict[str, str], rules: RoutingRules, code: int, says: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        route(message(**properties), rules)
    assert caught.value.code == code
    assert says in caught.value.remark


STAGED = {"TRAN_MSG": "true", "PGROUP": "sink", "UNIQ_KEY": "AB", "TERNMQ_STAGED_FOR": "q/1"}


def test_staged_half_keeps_its_delay() -> None:
    form = route(message(**STAGED, DELAY="2", CHECK_IMMUNITY_TIME_IN_SECONDS="60"), RULES)
    assert form.topic == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert form.properties["DELAY"] == "2"
    assert form.properties["REAL_TOPIC"] == "flights"


@pytest.mark.parametrize(
    ("properties", "word"),
    [
        ({"TERNMQ_STAGED_FOR": "q/1"}, "'TERNMQ_STAGED_FOR' without 'TRAN_MSG'"),
        ({**STAGED, "PGROUP": ""}, "'TRAN_MSG' without 'PGROUP'"),
        ({**STAGED, "UNIQ_KEY": ""}, "'TERNMQ_STAGED_FOR' without 'UNIQ_KEY'"),
        ({**STAGED, "TERNMQ_STAGED_FOR": "q 1"}, "'TERNMQ_STAGED_FOR'='q 1'"),
        ({**STAGED, "TERNMQ_STAGED_FOR": "q" * 201}, "'TERNMQ_STAGED_FOR'='qqq"),
        ({**STAGED, "CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"}, "'-1' is no number of seconds"),
        ({**STAGED, "CHECK_IMMUNITY_TIME_IN_SECONDS": "2147483649"}, "is no number of seconds"),
        ({**STAGED, "DELAY": "x"}, "'DELAY'='x'"),
        ({**STAGED, "TIMER_DELAY_MS": str(DELAY_MS_MAX + 1)}, "at most 3 days"),
        ({**STAGED, "TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "k"}, "TIMER_DEL_UNIQKEY"),
    ],
)
def test_illegal_staging_properties_are_refused_by_name(
    properties: dict[str, str], word: str
) -> None:
    told = {name: value for name, value in properties.items() if value}
    with pytest.raises(RefusedError, match=word) as refused:
        route(message(**told), RULES)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_retried_committed_message_may_keep_its_staging_property() -> None:
    retried = message(TERNMQ_STAGED_FOR="q/1")
    retried = replace(retried, topic="%RETRY%g")
    assert route(retried, RULES) is retried
