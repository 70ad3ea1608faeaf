import numpy as np
import pytest

from ternmq_client.admin.redrive import DeadLetter, redrive_key, redrive_request, target_topic
from ternmq_model.errors import UsageError
from ternmq_model.message_batch import decode_records
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import encode_properties
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import FLAG_COMMIT, FLAG_COMPRESSED, encode_record
from tests.support.records import BORN_HOST, STORE_HOST

DIED = {
    "TAGS": "t",
    "KEYS": "k",
    "mine": "x",
    "UNIQ_KEY": "KEY",
    "RETRY_TOPIC": "orders",
    "ORIGIN_MESSAGE_ID": "FIRST",
    "WAIT": "false",
    "MSG_REGION": "DefaultRegion",
    "TRACE_ON": "true",
    "CLUSTER": "c",
    "DLQ_ORIGIN_TOPIC": "orders",
    "DLQ_ORIGIN_MESSAGE_ID": "KEY",
    "TIMER_OUT_MS": "1",
    "DELAY": "-1",
}


def letter(
    properties: dict[str, str] | None = None, *, offset: int = 5, broker_name: str = "a"
) -> DeadLetter:
    record = encode_record(
        topic=b"%DLQ%G",
        queue_id=0,
        queue_offset=QueueOffset(offset),
        physical_offset=PhysicalOffset(offset * 100),
        body=b"body",
        properties=encode_properties(DIED if properties is None else properties),
        born_at_ms=7,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        stored_at_ms=9,
        reconsume_times=17,
        flag=3,
        sys_flag=FLAG_COMPRESSED | FLAG_COMMIT,
    )
    queue = MessageQueue("%DLQ%G", broker_name, 0)
    (message,) = decode_records(record, np.array([len(record)], dtype=np.int32), queue)
    return DeadLetter(message, is_handled=False)


def test_redriven_dead_letter_is_the_original_message_without_retries() -> None:
    request = redrive_request(letter(), to_group=False)
    key = redrive_key(letter())
    assert request.topic == "orders"
    assert dict(request.properties) == {"TAGS": "t", "KEYS": "k", "mine": "x", "UNIQ_KEY": key}
    assert (request.body, request.flag, request.born_at_ms) == (b"body", 3, 7)
    assert (request.sys_flag, request.queue_id) == (FLAG_COMPRESSED, -1)
    assert not request.auto_create.template_topic


def test_dead_letter_for_its_group_alone_names_its_topic() -> None:
    request = redrive_request(letter(), to_group=True)
    assert request.topic == "%RETRY%G"
    assert request.properties["RETRY_TOPIC"] == "orders"
    assert request.properties["ORIGIN_MESSAGE_ID"] == "KEY"
    assert "RECONSUME_TIME" not in request.properties


def test_key_of_a_dead_letter_is_unique_to_its_place() -> None:
    key = redrive_key(letter())
    assert len(key) == 32
    assert key == redrive_key(letter({"UNIQ_KEY": "OTHER"})) == key.upper()
    assert key not in (redrive_key(letter(offset=6)), redrive_key(letter(broker_name="b")))


def test_dead_letter_of_rocketmq_names_its_first_topic_in_another_property() -> None:
    old = letter({"UNIQ_KEY": "KEY", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "FIRST"})
    assert target_topic(old, to_group=False) == "orders"
    assert old.origin_message_id == "KEY"


@pytest.mark.parametrize("to_group", [False, True])
def test_dead_letter_without_an_origin_is_not_redriven(to_group: bool) -> None:
    with pytest.raises(UsageError, match="has no original topic"):
        redrive_request(letter({"UNIQ_KEY": "KEY"}), to_group=to_group)


def test_dead_letter_is_found_by_any_of_its_ids() -> None:
    one = letter()
    for name in ("KEY", "FIRST", one.message.offset_message_id):
        assert one.is_any_of({name, "other"})
    assert not one.is_any_of({"other", ""})
