import pytest

from ternmq_client.reply_message import is_request, reply_of
from ternmq_model.errors import IllegalMessage, UsageError
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage, decode_single
from tests.support.records import record

ASKED = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "a@1", "TTL": "3000", "CLUSTER": "east"}


def message(properties: dict[str, str]) -> StoredMessage:
    return decode_single(record("T", 3, b"?", properties), "b")


def test_reply_names_its_request_and_requester() -> None:
    request = message({**ASKED, "mine": "1"})
    assert request.queue == MessageQueue("T", "b", 3)
    assert is_request(request)
    topic, properties = reply_of(request, {"how": "well"})
    assert topic == "east_REPLY_TOPIC"
    assert properties == {
        "how": "well",
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c",
        "REPLY_TO_CLIENT": "a@1",
        "TTL": "3000",
    }


@pytest.mark.parametrize("missing", ["CORRELATION_ID", "REPLY_TO_CLIENT", "CLUSTER"])
def test_message_without_requester_cannot_be_answered(missing: str) -> None:
    asked = {name: value for name, value in ASKED.items() if name != missing}
    with pytest.raises(UsageError, match="no request"):
        reply_of(message(asked), {})


def test_reply_has_no_system_properties() -> None:
    for wrong in ({"TTL": "1"}, {"": "x"}, {"a": "\x01"}):
        with pytest.raises(IllegalMessage):
            reply_of(message(ASKED), wrong)
