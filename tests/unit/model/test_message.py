"""What an application may send."""

import copy
import enum
from typing import Any

import numpy as np
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
        (Message("T", b"", tags="a\x01b"), IllegalMessage, "tags"),
        (Message("T", b"", tags="a||b"), IllegalMessage, "tag 'a..b'"),
        (Message("T", b"", tags=" a"), IllegalMessage, "tag ' a'"),
        (Message("T", b"", properties={"__RMQ.TRANSIENT.x": "1"}), IllegalMessage, "TRANSIENT"),
        (Message("T", b"", keys=("a b",)), IllegalMessage, "blank"),
        (Message("T", b"", properties={"DELAY": "3"}), IllegalMessage, "DELAY"),
        (Message("T", b"", properties={"a": ""}), IllegalMessage, "'a'"),
        (Message("T", b"", properties={"a": "\x02"}), IllegalMessage, "'a'"),
        (Message("T", b"", properties={"a": "\ud800"}), IllegalMessage, "UTF-8"),
        (Message("T", b"", delay_level=1, deliver_at_ms=5), IllegalMessage, "exclude"),
        (Message("T", b"", delay_level=-1), IllegalMessage, "delay_level is -1"),
        (Message("T", b"", cancels="AB"), IllegalMessage, "deliver_at_ms"),
        (Message("T", b"", cancels="AB", deliver_after_ms=5), IllegalMessage, "deliver_at_ms"),
        (Message("T", b"", cancels="\x01", deliver_at_ms=5), IllegalMessage, "cancels"),
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


class Kind(str, enum.Enum):  # noqa: UP042 - `StrEnum` is formatted otherwise
    A = "a"


class Own(enum.StrEnum):
    B = "b"


def test_members_of_enums_are_stored_by_their_values() -> None:
    message = SystemMessage(
        Kind.A,
        b"",
        tags=Kind.A,
        keys=[Kind.A, Own.B],
        sharding_key=Kind.A,
        properties={Kind.A: Own.B, Own.B: Kind.A},
        system_properties={"PGROUP": Kind.A},
    )
    assert decode_properties(message.encoded_properties()) == {
        "TAGS": "a",
        "KEYS": "a b",
        "__SHARDINGKEY": "a",
        "a": "b",
        "b": "a",
        "PGROUP": "a",
    }


@pytest.mark.parametrize(
    "keys", [["a", "b"], ("a", "b"), {"a": 1, "b": 2}.keys(), np.array(["a", "b"]), [Kind.A, Own.B]]
)
def test_keys_may_be_any_collection_of_strings(keys: Any) -> None:
    assert decode_properties(Message("T", b"", keys=keys).encoded_properties()) == {"KEYS": "a b"}
    assert Message("T", b"", keys=frozenset[str]()).encoded_properties() == b""


def test_numbers_of_numpy_are_numbers() -> None:
    numbers: dict[str, Any] = {"flag": np.int32(5), "deliver_at_ms": np.int64(1_700_000_000_000)}
    message = Message("T", b"", **numbers)
    assert decode_properties(message.encoded_properties()) == {"TIMER_DELIVER_MS": "1700000000000"}


@pytest.mark.parametrize(
    "fields",
    [
        {"properties": None},
        {"keys": None},
        {"flag": None},
        {"flag": True},
        {"delay_level": True},
        {"topic": ["T"]},
    ],
)
def test_value_of_another_type_is_refused(fields: dict[str, Any]) -> None:
    given: dict[str, Any] = {"topic": "T", "body": b""}
    with pytest.raises((IllegalMessage, IllegalName)) as refused:
        Message(**(given | fields)).encoded_properties()
    assert next(iter(fields)) in str(refused.value)


def test_properties_of_messages_without_any_are_shared_and_cannot_be_changed() -> None:
    message = Message("T", b"")
    assert message.properties == {}
    assert message.properties is copy.deepcopy(message).properties
    properties: Any = message.properties
    with pytest.raises(TypeError, match="assign a new dict"):
        properties.update(a="b")
    with pytest.raises(TypeError, match="assign a new dict"):
        properties.setdefault("a", "b")
    with pytest.raises(TypeError, match="assign a new dict"):
        properties["a"] = "b"
    with pytest.raises(TypeError, match="assign a new dict"):
        properties |= {"a": "b"}
    assert Message("T", b"").properties == {}
