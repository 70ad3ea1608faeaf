"""Kinds of sent messages."""

from dataclasses import replace
from typing import Any

import pytest

from ternmq_client.message_kind import MessageKind, kind_of
from ternmq_model.message import Message, SystemMessage

MESSAGE = Message("T", b"hello", tags="t", keys=("k1", "k2"))


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, MessageKind.NORMAL),
        ({"delay_level": 3}, MessageKind.DELAY),
        ({"deliver_at_ms": 3}, MessageKind.DELAY),
        ({"deliver_after_ms": 3}, MessageKind.DELAY),
        ({"sharding_key": "a"}, MessageKind.ORDER),
    ],
)
def test_kind_is_that_of_the_send(changes: dict[str, Any], kind: MessageKind) -> None:
    assert kind_of(replace(MESSAGE, **changes)) is kind


def test_half_message_of_a_transaction_has_a_kind() -> None:
    half = SystemMessage("T", b"x", system_properties={"TRAN_MSG": "true"})
    assert kind_of(half) is MessageKind.TRANSACTION_HALF
