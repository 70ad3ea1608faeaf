from dataclasses import replace

import pytest

from ternmq_client.admin.descriptions import GroupDescription
from ternmq_client.admin.explain.facts import MessageFacts, RecordFacts
from ternmq_client.admin.explain.group_progress import (
    GroupState,
    group_progress,
    is_subscribed,
    row_of,
)
from ternmq_client.tracing.trace_records import ConsumeEnded
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1.groups_pb2 import QueueState, RunningState
from tests.support.messages_told import ORIGIN, facts, group, letter, record, retry

MESSAGE = record(properties={"TAGS": "new", "n": "3"})
WAITS = retry(1, is_waiting=True, begin=2000)
READY = retry(1, is_waiting=False, begin=3000)
QUEUE = MESSAGE.queue


def told(given: MessageFacts) -> tuple[GroupState, str]:
    """Return the state of the only group, and its evidence as one text."""
    (progress,) = group_progress(given)
    return progress.state, "\n".join(progress.evidence)


def ended(is_success: bool) -> tuple[str, ConsumeEnded]:
    """Return the trace of a listener's call that ended before the first retry."""
    return "10.0.0.3:1", ConsumeEnded(
        request_id="r",
        message_id="KEY",
        took_ms=1,
        is_success=is_success,
        keys=None,
        code=0,
        at_ms=1,
        group="G",
    )


@pytest.mark.parametrize(
    ("described", "state", "text"),
    [
        (group(), GroupState.UNSUBSCRIBED, "no live member subscribes to orders"),
        (group(committed=-1), GroupState.UNSUBSCRIBED, "no offset is committed"),
        (group(wants=("*",)), GroupState.NOT_BEGUN, "no offset in its queue"),
        (group(wants=("*",), is_broadcasting=True), GroupState.UNKNOWN, "no broker knows"),
        (group(committed=2, wants=("*",)), GroupState.WAITING, "3 messages are before it"),
        (group(committed=4), GroupState.WAITING, "1 message is before it"),
        (group(committed=5), GroupState.WAITING, "its filter is not known"),
        (group(committed=2, least=6), GroupState.EXPIRED, "the queue begins at 6"),
        (group(committed=6, least=6), GroupState.DONE, "is 6, the message is at 5"),
        (group(committed=6), GroupState.DONE, "which proves no success"),
        (group(committed=6, version=2), GroupState.DONE, "reset 2 times"),
        (group(committed=6, wants=("old",)), GroupState.FILTERED, "'old' excludes it"),
        (group(committed=2, wants=("old || x",)), GroupState.FILTERED, "excludes it"),
        (group(committed=6, wants=("new",)), GroupState.DONE, "'new' lets it through"),
        (group(committed=6, wants=("n > 5",), is_sql=True), GroupState.FILTERED, "SQL92 'n > 5'"),
        (group(committed=6, wants=("n > 1",), is_sql=True), GroupState.DONE, "lets it through"),
        (group(committed=6, wants=("n >",), is_sql=True), GroupState.DONE, "cannot be evaluated"),
        (group(committed=6, wants=("old", "*")), GroupState.DONE, "subscribe differently"),
    ],
)
def test_group_without_failures_is_judged_by_its_offset_and_filter(
    described: GroupDescription, state: GroupState, text: str
) -> None:
    found, evidence = told(facts(MESSAGE, groups=[described]))
    assert found is state
    assert text in evidence


@pytest.mark.parametrize(
    ("records", "described", "state", "text"),
    [
        ((WAITS,), group(committed=6), GroupState.RETRYING, "retry 1 waits for its time"),
        ((WAITS, READY), group(committed=6), GroupState.RETRYING, "where the group has no offset"),
        ((READY,), group(committed=6, retried=1), GroupState.RETRYING, "is 1, retry 1 is at 1"),
        ((READY,), group(committed=6, retried=2), GroupState.DONE, "1 delivery failed"),
        ((READY, letter()), group(retried=2), GroupState.DEAD, "3 deliveries failed"),
        ((letter(),), group("other"), GroupState.DEAD, "is not known"),
    ],
)
def test_group_that_failed_is_judged_by_its_retries_and_dead_letters(
    records: tuple[RecordFacts, ...], described: GroupDescription, state: GroupState, text: str
) -> None:
    found = {one.group: one for one in group_progress(facts(MESSAGE, *records, groups=[described]))}
    assert found["G"].state is state
    assert text in "\n".join(found["G"].evidence)


@pytest.mark.parametrize("copies", [(), (WAITS, READY)])
def test_group_that_no_broker_describes_is_unknown(copies: tuple[RecordFacts, ...]) -> None:
    state, evidence = told(facts(MESSAGE, *copies, only=["G"]))
    assert state is GroupState.UNKNOWN
    assert "no broker describes" in evidence
    assert told(facts(MESSAGE, WAITS))[0] is GroupState.RETRYING


def test_retry_that_is_late_does_not_wait() -> None:
    waits = facts(MESSAGE, WAITS)
    late = replace(waits, asked_at_ms=waits.asked_at_ms + 60_000)
    state, evidence = told(late)
    assert state is GroupState.RETRYING
    assert "retry 1 was due, and is not there" in evidence


def test_dead_letter_is_sent_again_handled_or_waits() -> None:
    dead = letter()
    new = record(properties={"UNIQ_KEY": "NEW"})
    place = dead.queue
    sent = facts(MESSAGE, dead, redriven={dead.offset_message_id: new}, handled={place: 1})
    assert "sent again, as message NEW" in told(sent)[1]
    assert "counts as handled" in told(facts(MESSAGE, dead, handled={place: 1}))[1]
    assert "waits for a redrive" in told(facts(MESSAGE, dead, handled={place: 0}))[1]


def test_group_is_unknown_when_retention_has_removed_the_record() -> None:
    progress = group_progress(facts(letter(), groups=[group("other", committed=6)]))
    assert [(one.group, one.state, one.queue) for one in progress] == [
        ("G", GroupState.DEAD, None),
        ("other", GroupState.UNKNOWN, None),
    ]


def test_each_of_two_records_has_its_own_retries() -> None:
    twin = record(offset=7, begin=5000, offset_message_id="0B" * 16)
    progress = group_progress(facts(MESSAGE, WAITS, twin, groups=[group(committed=8)]))
    assert [one.state for one in progress] == [GroupState.RETRYING, GroupState.DONE]
    assert MESSAGE.offset_message_id == ORIGIN


@pytest.mark.parametrize("committed", [2, 6])
def test_offset_proves_nothing_of_a_message_that_its_queue_lacks(committed: int) -> None:
    # Its topic was deleted and created again: another message is at its offset.
    given = facts(MESSAGE, groups=[group(committed=committed)], first_read={("a", 1000): None})
    state, evidence = told(given)
    assert state is GroupState.UNKNOWN
    assert "offsets prove nothing" in evidence


def test_finished_retry_of_a_group_that_was_reset_since_may_come_again() -> None:
    assert (
        "may come again" in told(facts(MESSAGE, READY, groups=[group(committed=5, retried=2)]))[1]
    )
    after = told(facts(MESSAGE, READY, groups=[group(committed=6, retried=2)]))[1]
    assert "again" not in after


@pytest.mark.parametrize(("read_offset", "text"), [(6, "has fetched it"), (5, "not come to it")])
def test_member_that_has_read_a_waiting_message_is_named(read_offset: int, text: str) -> None:
    queue = QueueState(
        topic="orders", broker_name="a", queue_id=0, commit_offset=2, read_offset=read_offset
    )
    running = {("G", "G@0"): RunningState(group="G", queues=[queue])}
    given = facts(MESSAGE, groups=[group(committed=2, wants=("*",))], running=running)
    state, evidence = told(given)
    assert state is GroupState.WAITING
    assert "member G@0 at 10.0.0.2:1" in evidence
    assert text in evidence


@pytest.mark.parametrize(
    ("is_success", "state"), [(True, GroupState.CONSUMED), (False, GroupState.WAITING)]
)
def test_traced_success_proves_consumption(is_success: bool, state: GroupState) -> None:
    described = group(committed=5, wants=("*",))
    found, evidence = told(facts(MESSAGE, groups=[described], traces=[ended(is_success)]))
    assert found is state
    assert "trace: a listener at 10.0.0.3:1" in evidence


def test_traced_success_is_not_that_of_a_later_retry_or_of_one_of_two_records() -> None:
    twin = record(offset=7, begin=5000, offset_message_id="0B" * 16)
    traced = {"groups": [group(committed=5)], "traces": [ended(is_success=True)]}
    assert told(facts(MESSAGE, WAITS, **traced))[0] is GroupState.RETRYING
    states = [one.state for one in group_progress(facts(MESSAGE, twin, **traced))]
    assert states == [GroupState.WAITING, GroupState.WAITING]


def test_subscription_or_offset_makes_a_group_subscribed() -> None:
    assert is_subscribed(group(wants=("*",)), "orders")
    assert is_subscribed(group(committed=0), "orders")
    assert not is_subscribed(group(committed=-1), "orders")
    row = row_of(group(committed=3), MESSAGE)
    assert row is not None
    assert (row.queue, row.committed_offset) == (MessageQueue("orders", "a", 0), 3)
    assert row.queue == QUEUE
    assert row_of(group(), MESSAGE) is None
