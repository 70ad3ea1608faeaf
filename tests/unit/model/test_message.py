"""What an application may send."""

from typing import Any

import pytest

from ternmq_model.errors import IllegalMessage, IllegalName, TernError
from ternmq_model.message import Message, SystemMessage
from ternmq_model.properties import decode_properties


def test_properties_carry_tag_keys_and_sharding_key() -> None:
    message = Message(
        "T", b"", tags="t", keys=("k1", "k2"), properties={"a": "b"}, sharding_key="s"
    )
    assert decode_properties(message.encoded_properties()) == {
        "TAGS": "t",
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "s",
        "a": "b",
    }


@pytest.mark.parametrize(
    ("message", "error", "culprit"),
    [
        (Message("", b""), IllegalName, "topic ''"),
        (Message("../../etc", b""), IllegalName, "letters"),
        (Message("T" * 128, b""), IllegalName, "127"),
        (Message("T", bytes((4 << 20) + 1)), IllegalMessage, "4194304"),
        (Message("T", b"", tags="a\x01b"), IllegalMessage, "TAGS"),
        (Message("T", b"", tags="a||b"), IllegalMessage, "tag 'a..b'"),
        (Message("T", b"", tags=" a"), IllegalMessage, "tag ' a'"),
        (Message("T", b"", properties={"__RMQ.TRANSIENT.x": "1"}), IllegalMessage, "TRANSIENT"),
        (Message("T", b"", keys=("a b",)), IllegalMessage, "blank"),
        (Message("T", b"", properties={"DELAY": "3"}), IllegalMessage, "DELAY"),
        (Message("T", b"", properties={"a": ""}), IllegalMessage, "'a'"),
        (Message("T", b"", properties={"a": "\x02"}), IllegalMessage, "'a'"),
        (Message("T", b"", properties={"a": "\ud800"}), IllegalMessage, "UTF-8"),
        (Message("T", b"", delay_level=1, deliver_at_ms=5), IllegalMessage, "exclude"),
        (Message("T", b"", delay_level=-1), IllegalMessage, "DELAY is -1"),
        (Message("T", b"", cancels="AB"), IllegalMessage, "deliver_at_ms"),
        (Message("T", b"", cancels="AB", deliver_after_ms=5), IllegalMessage, "deliver_at_ms"),
        (Message("T", b"", cancels="\x01", deliver_at_ms=5), IllegalMessage, "TIMER_DEL_UNIQKEY"),
        (SystemMessage("T", b"", system_properties={"PGROUP": ""}), IllegalMessage, "PGROUP"),
    ],
)
def test_messages_that_break_a_limit_name_the_culprit(
    message: Message, error: type[TernError], culprit: str
) -> None:
    with pytest.raises(error, match=culprit):
        message.encoded_properties()


@pytest.mark.parametrize(
    "fields",
    [
        {"properties": {"n": 5}},
        {"properties": {5: "n"}},
        {"keys": [42]},
        {"sharding_key": 42},
        {"sharding_key": b"key"},
    ],
)
def test_non_text_fields_are_refused_in_words(fields: dict[str, Any]) -> None:
    with pytest.raises(IllegalMessage, match="both must be strings"):
        Message("T", b"", **fields).encoded_properties()


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        (Message("T", b"", delay_level=3), "DELAY", "3"),
        (Message("T", b"", deliver_at_ms=1_700_000_000_000), "TIMER_DELIVER_MS", "1700000000000"),
        (Message("T", b"", deliver_after_ms=250), "TIMER_DELAY_MS", "250"),
        (SystemMessage("T", b"", system_properties={"TRAN_MSG": "true"}), "TRAN_MSG", "true"),
    ],
)
def test_delivery_and_system_properties_are_written(
    message: Message, name: str, value: str
) -> None:
    assert decode_properties(message.encoded_properties()) == {name: value}


def test_cancelling_message_names_the_other_and_its_time() -> None:
    encoded = Message("T", b"", deliver_at_ms=5, cancels="AB").encoded_properties()
    assert decode_properties(encoded) == {"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "AB"}
