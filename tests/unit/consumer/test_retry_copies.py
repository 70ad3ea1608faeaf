"""Copies of messages whose records are gone."""

import pytest

from ternmq_consumer.retry_copies import copy_properties
from ternmq_model.queue import MessageQueue
from ternmq_model.redelivered_message import under_original_topic
from tests.support.handed_out import message_at


def test_a_copy_carries_what_the_message_was_and_nothing_that_would_lead_it_elsewhere() -> None:
    message = message_at(
        2,
        properties="TAGS\x01a\x02mine\x01yes\x02TRAN_MSG\x01true\x02REAL_TOPIC\x01x\x02"
        "TIMER_DELIVER_MS\x019\x02MSG_REGION\x01r\x02",
    )
    copied = copy_properties(message, 0, retries_max=-1)
    assert copied == {
        "UNIQ_KEY": "id-2",
        "TAGS": "a",
        "mine": "yes",
        "RETRY_TOPIC": "t",
        "ORIGIN_MESSAGE_ID": message.offset_message_id,
        "RECONSUME_TIME": "1",
        "DELAY": "3",
    }


@pytest.mark.parametrize(
    ("tried", "level", "retries_max", "said"),
    [
        (0, 0, -1, ("1", None, "3")),
        (2, 0, 5, ("3", "5", "5")),
        (2, 9, 5, ("3", "5", "9")),
        (40, 0, -1, ("41", None, "18")),
        (0, -1, 5, ("1", "0", None)),
    ],
)
def test_a_copy_says_how_often_and_when(
    tried: int, level: int, retries_max: int, said: tuple[str, str | None, str | None]
) -> None:
    copied = copy_properties(message_at(0, reconsume_times=tried), level, retries_max=retries_max)
    assert said == (
        copied["RECONSUME_TIME"],
        copied.get("MAX_RECONSUME_TIMES"),
        copied.get("DELAY"),
    )


def test_a_copy_of_a_retry_keeps_its_first_topic_and_its_first_record() -> None:
    retry = message_at(
        0,
        queue=MessageQueue("%RETRY%g", "b", 0),
        properties="RETRY_TOPIC\x01orders\x02ORIGIN_MESSAGE_ID\x01first\x02DELAY\x013\x02",
        reconsume_times=1,
    )
    copied = copy_properties(under_original_topic(retry), 0, retries_max=-1)
    assert (copied["RETRY_TOPIC"], copied["ORIGIN_MESSAGE_ID"]) == ("orders", "first")
    assert (copied["RECONSUME_TIME"], copied["DELAY"]) == ("2", "4")
