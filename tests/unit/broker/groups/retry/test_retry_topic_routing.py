from dataclasses import replace

import pytest

from ternmq_broker.groups.retry.retry_topic_routing import retried
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_model.errors import MessageRefused
from ternmq_model.group_settings import GroupSettings

GROUP = GroupSettings("G")


def sent(**properties: str) -> InternalRecord:
    told = {"UNIQ_KEY": "KEY", "RETRY_TOPIC": "A", "ORIGIN_MESSAGE_ID": "FIRST"} | properties
    return InternalRecord(
        topic="%RETRY%G",
        queue_id=0,
        body=b"body",
        properties=told,
        born_at_ms=1,
        born_host=b"\x7f\0\0\1\0\0\0\1",
    )


@pytest.mark.parametrize(
    ("tries", "most", "is_orderly", "is_dead"),
    [
        ("1", None, False, False),
        ("16", None, False, False),
        ("17", None, False, True),
        ("3", "3", False, False),
        ("4", "3", False, True),
        ("40", "100", False, False),
        ("1", None, True, True),
    ],
)
def test_excess_and_orderly_retries_are_dead_letters(
    tries: str, most: str | None, is_orderly: bool, is_dead: bool
) -> None:
    record = sent(RECONSUME_TIME=tries, DELAY="5")
    if most is not None:
        record = replace(record, properties={**record.properties, "MAX_RECONSUME_TIMES": most})
    done = retried(record, GROUP, is_orderly=is_orderly)
    assert done.topic == ("%DLQ%G" if is_dead else "%RETRY%G")
    assert done.reconsume_times == int(tries)
    assert not {"RECONSUME_TIME", "MAX_RECONSUME_TIMES"} & done.properties.keys()
    assert ("DELAY" in done.properties) != is_dead
    if is_dead:
        assert done.properties["DLQ_ORIGIN_TOPIC"] == "A"
        assert done.properties["DLQ_ORIGIN_MESSAGE_ID"] == "KEY"


def test_ordinary_message_to_a_retry_topic_stays_as_it_is() -> None:
    record = sent()
    assert retried(record, GROUP, is_orderly=True) is record


@pytest.mark.parametrize(
    "properties",
    [
        {"RECONSUME_TIME": "-1"},
        {"RECONSUME_TIME": "x"},
        {"RECONSUME_TIME": "99999999"},
        {"RECONSUME_TIME": "1", "MAX_RECONSUME_TIMES": "²"},
    ],
)
def test_malformed_retry_count_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(MessageRefused, match="RECONSUME_TIME"):
        retried(sent(**properties), GROUP, is_orderly=False)
