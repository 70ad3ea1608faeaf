"""Copies of messages whose records are gone."""

import asyncio
from typing import Any

import pytest

from ternmq_consumer.retry.retry_copies import RetryCopies, copy_properties
from ternmq_model.message import SendResult, SendStatus
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.redelivered_message import under_original_topic
from ternmq_model.stored_message import decode_single
from tests.support.handed_out import message_at
from tests.support.records import record


def test_copy_carries_the_message_and_no_routing_properties() -> None:
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
def test_copy_records_its_attempts_and_delay(
    tried: int, level: int, retries_max: int, said: tuple[str, str | None, str | None]
) -> None:
    copied = copy_properties(message_at(0, reconsume_times=tried), level, retries_max=retries_max)
    assert said == (
        copied["RECONSUME_TIME"],
        copied.get("MAX_RECONSUME_TIMES"),
        copied.get("DELAY"),
    )


def test_copy_of_a_retry_keeps_its_first_topic_and_record() -> None:
    retry = message_at(
        0,
        queue=MessageQueue("%RETRY%g", "b", 0),
        properties="RETRY_TOPIC\x01orders\x02ORIGIN_MESSAGE_ID\x01first\x02DELAY\x013\x02",
        reconsume_times=1,
    )
    copied = copy_properties(under_original_topic(retry), 0, retries_max=-1)
    assert (copied["RETRY_TOPIC"], copied["ORIGIN_MESSAGE_ID"]) == ("orders", "first")
    assert (copied["RECONSUME_TIME"], copied["DELAY"]) == ("2", "4")


def test_copy_of_an_unreadable_body_is_sent_as_it_lies() -> None:
    sent: list[tuple[bytes, int]] = []

    class Path:
        async def send(self, _topic: str, body: bytes, _told: object, **fields: Any) -> SendResult:
            sent.append((body, fields["sys_flag"]))
            where = MessageQueue("t", "b", 0)
            return SendResult(
                SendStatus.SEND_OK, "id", where, QueueOffset(0), PhysicalOffset(0), b""
            )

    path: Any = Path()
    broken = decode_single(record(body=b"no zlib", sys_flag=0x301), "b")
    copies = RetryCopies(path, group="g", timeout_s=1, retries_max=-1)
    assert asyncio.run(copies.send(broken, 0))
    assert sent == [(b"no zlib", 0x301)]
