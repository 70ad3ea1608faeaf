from dataclasses import replace
from typing import Any

import pytest

from ternmq_broker.groups.retry.retry_policy import (
    FailedMessage,
    SendBackAction,
    SendBackDecision,
    clean,
    decide_retry,
    why_not,
)
from ternmq_model.errors import PermissionRefused, RefusedError
from ternmq_model.group_settings import GroupSettings
from ternmq_model.message_id import offset_message_id
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import encode_properties
from ternmq_model.record.format import (
    FLAG_COMMIT,
    FLAG_COMPRESSED,
    Record,
    decode_record,
    encode_record,
)

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
GROUP = GroupSettings("G")
FAILURE = FailedMessage("KEY", "T", 3, 17)


def record(topic: str = "T", properties: dict[str, str] | None = None, **fields: Any) -> Record:
    told = {"UNIQ_KEY": "KEY"} if properties is None else properties
    fields = {"queue_id": 3, "queue_offset": 17, "physical_offset": PhysicalOffset(400)} | fields
    data = encode_record(
        topic=topic.encode(),
        body=b"body",
        properties=encode_properties(told),
        born_at_ms=5,
        born_host=HOST,
        store_host=HOST,
        **fields,
    )
    decoded = decode_record(data)
    assert decoded is not None
    return decoded


OFFSET_ID = offset_message_id(HOST, PhysicalOffset(400))


def back(
    told: Record, failure: FailedMessage = FAILURE, group: GroupSettings = GROUP, queue_id: int = 0
) -> SendBackDecision:
    return decide_retry(told, failure, group, queue_id=queue_id)


@pytest.mark.parametrize("tries", range(16))
def test_first_retry_waits_10_s_and_each_further_one_a_level_longer(tries: int) -> None:
    done = back(record(reconsume_times=tries))
    assert done.action is SendBackAction.RETRY
    assert done.delay_level == 3 + tries
    assert done.record.reconsume_times == tries + 1


@pytest.mark.parametrize(
    ("tries", "level", "attempts_max", "retries_max", "action", "waits"),
    [
        (0, 0, 0, 16, SendBackAction.RETRY, 3),
        (15, 0, 0, 16, SendBackAction.RETRY, 18),
        (16, 0, 0, 16, SendBackAction.DEAD, 0),
        (40, 0, 0, 16, SendBackAction.DEAD, 0),
        (16, 0, 100, 16, SendBackAction.RETRY, 18),
        (0, 1, 0, 16, SendBackAction.RETRY, 1),
        (0, 18, 0, 16, SendBackAction.RETRY, 18),
        (16, 5, 0, 16, SendBackAction.DEAD, 0),
        (0, -1, 0, 16, SendBackAction.DEAD, 0),
        (2, 0, 2, 16, SendBackAction.DEAD, 0),
        (1, 0, 2, 16, SendBackAction.RETRY, 4),
        (0, 0, 0, 0, SendBackAction.DEAD, 0),
        (3, 0, 0, 3, SendBackAction.DEAD, 0),
        (3, 0, 5, 3, SendBackAction.RETRY, 6),
    ],
)
def test_attempts_and_levels_decide_between_retry_and_dead_letter(
    tries: int, level: int, attempts_max: int, retries_max: int, action: SendBackAction, waits: int
) -> None:
    failure = replace(FAILURE, delay_level=level, attempts_max=attempts_max)
    done = back(
        record(reconsume_times=tries),
        failure,
        GroupSettings("G", True, True, False, 1, retries_max),
    )
    assert (done.action, done.delay_level) == (action, waits)


@pytest.mark.parametrize("level", [0, -1])
@pytest.mark.parametrize(("recorded", "told"), [(0, 5), (5, 0), (5, 3), (2, 5), (5, 5)])
def test_copy_counts_on_from_the_greater_number_of_retries(
    recorded: int, told: int, level: int
) -> None:
    failure = replace(FAILURE, delay_level=level, reconsume_times=told)
    done = back(record(reconsume_times=recorded), failure)
    assert done.record.reconsume_times == 6
    assert (done.action, done.delay_level) == (
        (SendBackAction.DEAD, 0) if level else (SendBackAction.RETRY, 8)
    )


def test_retries_of_a_member_count_towards_the_limit() -> None:
    failure = replace(FAILURE, reconsume_times=16)
    assert back(record(), failure).action is SendBackAction.DEAD


def test_group_without_retry_queues_drops_its_messages() -> None:
    group = replace(GROUP, retry_queues=0)
    assert back(record(), group=group).action is SendBackAction.DROPPED
    assert back(record(reconsume_times=16), group=group).action is SendBackAction.DROPPED


def test_retry_keeps_the_message_and_names_its_origin() -> None:
    told = record(
        properties={"TAGS": "t", "UNIQ_KEY": "KEY", "mine": "x"}, flag=7, sys_flag=FLAG_COMPRESSED
    )
    again = back(told, queue_id=2).record
    assert (again.topic, again.queue_id) == ("%RETRY%G", 2)
    assert dict(again.properties) == {
        "TAGS": "t",
        "UNIQ_KEY": "KEY",
        "mine": "x",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": OFFSET_ID,
        "WAIT": "false",
        "TERNMQ_SOURCE": "400.0",
    }
    assert (again.body, again.flag, again.sys_flag) == (b"body", 7, FLAG_COMPRESSED)
    assert (again.born_at_ms, again.born_host) == (5, HOST)


def test_retried_message_keeps_its_first_origin() -> None:
    properties = {"UNIQ_KEY": "KEY", "RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "FIRST"}
    done = back(record("%RETRY%G", properties, reconsume_times=4))
    assert done.origin_topic == done.record.properties["RETRY_TOPIC"] == "T"
    assert done.record.properties["ORIGIN_MESSAGE_ID"] == "FIRST"


def test_origin_properties_set_by_users_are_replaced() -> None:
    properties = {"UNIQ_KEY": "KEY", "RETRY_TOPIC": "Other", "ORIGIN_MESSAGE_ID": "OTHER"}
    done = back(record("T", properties))
    assert done.record.properties["RETRY_TOPIC"] == "T"
    assert done.record.properties["ORIGIN_MESSAGE_ID"] == OFFSET_ID


def test_dead_letter_is_not_delayed_and_names_its_origin() -> None:
    properties = {
        "UNIQ_KEY": "KEY",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": "FIRST",
        "DELAY": "18",
        "REAL_TOPIC": "%RETRY%G",
        "REAL_QID": "0",
        "TIMER_DELIVER_MS": "1",
        "TIMER_DELAY_SEC": "9",
        "TIMER_OUT_MS": "2",
    }
    done = back(record("%RETRY%G", properties, reconsume_times=16))
    assert done.action is SendBackAction.DEAD
    letter = done.record
    assert (letter.topic, letter.queue_id, letter.reconsume_times) == ("%DLQ%G", 0, 17)
    assert dict(letter.properties) == {
        "UNIQ_KEY": "KEY",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": "FIRST",
        "WAIT": "false",
        "DLQ_ORIGIN_TOPIC": "T",
        "DLQ_ORIGIN_MESSAGE_ID": "KEY",
        "TERNMQ_SOURCE": "400.0",
    }


def test_dead_letter_without_a_unique_key_is_named_by_its_place() -> None:
    done = back(record(properties={}), replace(FAILURE, message_id=OFFSET_ID, delay_level=-1))
    assert done.record.properties["DLQ_ORIGIN_MESSAGE_ID"] == OFFSET_ID


def test_transactional_message_is_an_ordinary_one_when_retried() -> None:
    told = record(
        properties={"UNIQ_KEY": "KEY", "TRAN_MSG": "true"}, sys_flag=FLAG_COMMIT, prepared_offset=99
    )
    again = back(told).record
    assert (again.sys_flag, again.prepared_offset) == (0, 0)
    assert "TRAN_MSG" not in again.properties


def test_message_may_be_identified_by_unique_key_or_place() -> None:
    assert why_not(record(), FAILURE) is None
    assert why_not(record(), replace(FAILURE, message_id=OFFSET_ID)) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"message_id": "OTHER"}, "is message KEY, not 'OTHER'"),
        ({"message_id": ""}, "is message KEY, not ''"),
        ({"topic": "U"}, "lies offset 17 of 'T' queue 3, not 17 of 'U' queue 3"),
        ({"queue_id": 1}, "not 17 of 'T' queue 1"),
        ({"queue_offset": 18}, "not 18 of 'T' queue 3"),
        ({"delay_level": -2}, "delay_level -2 must be -1 to 18"),
        ({"delay_level": 19}, "delay_level 19"),
        ({"attempts_max": -1}, "attempts_max -1"),
        ({"reconsume_times": -1}, "reconsume_times -1 must be 0"),
        ({"reconsume_times": (1 << 31) - 1}, "reconsume_times 2147483647"),
    ],
)
def test_message_other_than_requested_is_not_sent_back(change: dict[str, Any], says: str) -> None:
    refused = why_not(record(), replace(FAILURE, **change))
    assert isinstance(refused, RefusedError)
    assert says in refused.remark


@pytest.mark.parametrize(
    "topic",
    [
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_wheel_timer",
    ],
)
def test_pending_messages_in_system_topics_cannot_be_sent_back(topic: str) -> None:
    refused = why_not(record(topic), replace(FAILURE, topic=topic))
    assert isinstance(refused, PermissionRefused)


def test_user_properties_stay_when_a_message_is_cleaned() -> None:
    assert clean({"DELAY": "3", "TIMER_X": "1", "mine": "x", "KEYS": "k"}) == {
        "mine": "x",
        "KEYS": "k",
    }
