"""A message is found by either of its ids."""

import asyncio
from typing import cast

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_console.message.lookup import find_message
from ternmq_model.errors import MessageNotFound, UsageError, refusal
from ternmq_model.response_code import ResponseCode

OFFSET_ID, UNIQUE_ID = "7F0000010000518C" + "0" * 16, "7F000001" + "AB" * 12


class Brokers:
    """Knows one message; its ids look alike."""

    def __init__(self, asked: list[str]) -> None:
        self.asked = asked

    async def message(self, message_id: str) -> str:
        self.asked.append("offset")
        if message_id != OFFSET_ID:
            raise refusal(ResponseCode.QUERY_NOT_FOUND, "none")
        return "message"

    async def query_messages(self, topic: str, key: str, *, is_unique_key: bool) -> list[str]:
        assert is_unique_key
        self.asked.append(f"key in {topic!r}")
        if key != UNIQUE_ID and key != "short":
            raise refusal(ResponseCode.QUERY_NOT_FOUND, "none")
        return ["message"]


def find(message_id: str, topic: str = "") -> tuple[object, list[str]]:
    asked: list[str] = []
    admin = cast("AdminClient", Brokers(asked))
    return asyncio.run(find_message(admin, message_id, topic)), asked


def test_offset_id_is_tried_first() -> None:
    assert find(OFFSET_ID) == ("message", ["offset"])
    assert find(UNIQUE_ID, "T") == ("message", ["offset", "key in 'T'"])


def test_text_that_is_no_offset_id_is_searched_as_key() -> None:
    assert find("short") == ("message", ["key in ''"])


def test_unknown_id_is_not_found() -> None:
    with pytest.raises(MessageNotFound):
        find("AB" * 16)
    assert not issubclass(MessageNotFound, UsageError)
