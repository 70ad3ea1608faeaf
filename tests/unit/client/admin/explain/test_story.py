from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ternmq_client.admin.explain.story import MessageStory, delivery_of, story_of
from ternmq_client.admin.open_transactions import TransactionView
from ternmq_client.message_kind import MessageKind
from ternmq_client.tracing.trace_records import (
    ConsumeBegan,
    ConsumeEnded,
    MessageSent,
    TraceRecord,
    TransactionEnded,
)
from ternmq_model.names import CHECK_MAX_TOPIC, SCHEDULE_TOPIC, WHEEL_TOPIC
from ternmq_model.transaction import TransactionState
from ternmq_protos.v1.replication_pb2 import FollowerStatus, ReplicationStatusReply
from tests.support.messages_told import NOW_MS, facts, letter, record, retry

MESSAGE = record()
SENT: Mapping[str, Any] = {
    "at_ms": 1,
    "region": "r",
    "group": "P",
    "topic": "orders",
    "message_id": "KEY",
    "tags": None,
    "keys": None,
    "store_host": "h",
}


def text_of(lines: Sequence[str]) -> str:
    return "\n".join(lines)


def events_of(story: MessageStory) -> str:
    return text_of([one.text for one in story.events])


@pytest.mark.parametrize(
    ("safe", "appended", "confirmed", "lines"),
    [
        (1100, 1100, 1100, ("confirmed: a", "slave 1 of a has it safely")),
        (0, 1100, 1100, ("slave 1 of a has it, not yet safely",)),
        (0, 1099, 1099, ("not confirmed, so no consumer gets it", "slave 1 of a lacks it")),
    ],
)
def test_record_is_compared_with_confirm_offset_and_slaves(
    safe: int, appended: int, confirmed: int, lines: Sequence[str]
) -> None:
    slave = FollowerStatus(broker_id=1, safe_offset=safe, appended_offset=appended)
    status = ReplicationStatusReply(
        confirm_offset=confirmed, safe_offset=1100, flush_mode="sync", followers=[slave]
    )
    storage = text_of(story_of(facts(MESSAGE, replication={"a": status})).storage)
    assert all(line in storage for line in lines)
    assert "is safe on the disk of a" in storage
    del status.followers[:]
    alone = text_of(story_of(facts(MESSAGE, replication={"a": status})).storage)
    assert "no connected slave" in alone


@pytest.mark.parametrize(
    ("first", "text"),
    [(5, "can read it"), (None, "cannot read it at present"), (7, "its queue begins at 7")],
)
def test_dispatch_is_what_a_read_of_the_queue_finds(first: int | None, text: str) -> None:
    story = story_of(facts(MESSAGE, first_read={("a", MESSAGE.begin): first}))
    assert text in text_of(story.storage)


def test_events_are_in_the_order_of_their_times() -> None:
    waiting, ready = (
        retry(1, is_waiting=True, begin=2000),
        retry(1, is_waiting=False, begin=3000),
    )
    story = story_of(facts(MESSAGE, waiting, ready, letter()))
    assert [one.text.partition(":")[0] for one in story.events] == [
        "made by a producer at 10.0.0.1",
        "stored in orders queue 0 on a at offset 5 (log offset 1000, 100 bytes)",
        "group G failed to consume it",
        "retry 1 ready for group G",
        "dead letter of group G after 3 failed deliveries",
    ]
    assert story.topics == ("orders",)
    untraced, errors = story.unknown
    assert untraced.startswith("without a trace")
    assert errors == "the errors of failed deliveries are in the logs of the group's clients alone"
    assert not any(one.startswith("the errors") for one in story_of(facts(MESSAGE)).unknown)


@pytest.mark.parametrize(
    ("level", "lines", "later"),
    [
        (5, "waits for orders until 2026-11-20T23:09:07.000Z, 60 s from now", False),
        (1, "was due for orders at 2026-11-20T23:08:08.000Z and is not there", False),
        (1, "", True),
    ],
)
def test_delayed_message_waits_or_was_delivered(level: int, lines: str, later: bool) -> None:
    copy = record(
        SCHEDULE_TOPIC,
        at_ms=1_795_216_087_000 if level == 1 else NOW_MS,
        queue_id=level - 1,
        begin=100,
        properties={"REAL_TOPIC": "orders"},
    )
    story = story_of(facts(copy, *([MESSAGE] if later else [])))
    storage = text_of(story.storage)
    assert lines.partition("2026")[0] in storage
    assert ("orders until" in storage or "due for orders" in storage) is not later
    assert "stored for orders, to wait until" in events_of(story)
    assert delivery_of(copy, [MESSAGE]) is MESSAGE


def test_timer_without_a_time_is_told() -> None:
    odd = record(WHEEL_TOPIC, properties={"REAL_TOPIC": "orders"})
    assert "without a readable time" in text_of(story_of(facts(odd)).storage)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (TransactionState.OPEN, "its producers were asked 2 times so far"),
        (TransactionState.ROLLED_BACK, "no consumer ever gets it"),
        (TransactionState.COMMITTED, "committed on a, of producer group P"),
    ],
)
def test_transaction_has_its_state(state: TransactionState, text: str) -> None:
    story = story_of(facts(transactions=[TransactionView("a", "P", state, 2)]))
    assert text in text_of(story.storage)


def test_committed_and_undecided_messages_are_told_by_their_records() -> None:
    committed = record(transaction=700, properties={"PGROUP": "P"})
    assert "committed by producer group P" in events_of(story_of(facts(committed)))
    parked = record(CHECK_MAX_TOPIC, properties={"REAL_TOPIC": "orders"})
    story = story_of(facts(parked))
    assert "set aside undecided" in events_of(story)
    assert story.topics == ("orders",)


def test_request_and_reply_are_named() -> None:
    asked = record(properties={"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "x@1"})
    story = story_of(facts(asked))
    assert "a request of client x@1, with the correlation id c" in story.storage
    assert "a reply has an id of its own" in text_of(story.unknown)
    reply = record(properties={"CORRELATION_ID": "c", "MSG_TYPE": "reply"})
    assert "a reply, with the correlation id c" in story_of(facts(reply)).storage


def test_lost_record_leaves_what_its_copies_and_traces_tell() -> None:
    story = story_of(facts(letter(), gaps=["x: you may not see it"]))
    assert story.topics == ("orders",)
    assert story.unknown[0] == "x: you may not see it"
    assert "is gone, by retention or with its topic" in story.unknown[1]


def test_traces_are_events_with_their_clients() -> None:
    records: list[TraceRecord] = [
        MessageSent(
            **SENT,
            body_length=1,
            took_ms=1,
            kind=MessageKind.NORMAL,
            offset_message_id="",
            is_success=True,
        ),
        *(
            ConsumeBegan(
                at_ms=2,
                region=None,
                group="G",
                request_id=request_id,
                message_id="KEY",
                retries=0,
                keys=None,
            )
            for request_id in "ab"
        ),
        ConsumeEnded(
            request_id="a",
            message_id="KEY",
            took_ms=1,
            is_success=False,
            keys=None,
            code=2,
            at_ms=3,
            group="G",
        ),
        TransactionEnded(
            **SENT,
            kind=MessageKind.TRANSACTION_COMMIT,
            transaction_id="t",
            state="COMMIT_MESSAGE",
            is_from_check=False,
        ),
    ]
    traces = [("10.0.0.9:1", one) for one in records]
    story = story_of(facts(traces=traces))
    assert story.topics == ("orders",)
    assert [one.text for one in story.events] == [
        "trace: sent to orders by producer group P at 10.0.0.9:1, confirmed",
        "trace: transaction ended by producer group P at 10.0.0.9:1: COMMIT_MESSAGE",
        "trace: given to a listener of group G at 10.0.0.9:1; no end is traced",
        "trace: failed with an exception by a listener of group G at 10.0.0.9:1",
    ]
    without = "without a trace of them"
    assert without not in text_of(story_of(facts(MESSAGE, traces=traces)).unknown)
    assert without in text_of(story_of(facts(MESSAGE, traces=traces[:1])).unknown)


def test_redrive_is_an_event_with_the_new_id() -> None:
    dead = letter()
    new = record(properties={"UNIQ_KEY": "NEW"})
    story = story_of(facts(dead, redriven={dead.offset_message_id: new}))
    assert "dead letter sent again to orders as message NEW" in events_of(story)
