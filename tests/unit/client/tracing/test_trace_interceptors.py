from dataclasses import replace
from random import Random

import pytest

from ternmq_client.interceptors import ConsumeEvent, ConsumeOutcome, SendEvent
from ternmq_client.tracing.trace_dispatcher import Traces
from ternmq_client.tracing.trace_interceptors import ConsumeTraces, SendTraces
from ternmq_client.tracing.trace_records import (
    ConsumeBegan,
    ConsumeEnded,
    MessageSent,
    TransactionEnded,
)
from ternmq_model.errors import Unreachable
from ternmq_model.message import Message, SendResult, SendStatus
from ternmq_model.message_batch import decode_records
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from tests.support.records import record, sizes_of

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
QUEUE = MessageQueue("T", "b", 0)
RESULT = SendResult(SendStatus.SEND_OK, "M", QUEUE, QueueOffset(3), PhysicalOffset(64), HOST)
MESSAGE = Message("T", b"hello", tags="t", keys=("k1", "k2"))
SENT = SendEvent(group="P", message=MESSAGE, result=RESULT, error=None, began_at_ms=100, took_ms=7)


class Offered:
    """Keeps what is offered."""

    def __init__(self) -> None:
        self.traces: list[Traces] = []

    def __call__(self, traces: Traces) -> bool:
        self.traces.append(traces)
        return True


def test_stored_message_is_traced() -> None:
    offered = Offered()
    traces = SendTraces("P", "TRACE", offered)
    assert traces.before_send(MESSAGE) is MESSAGE
    traces.after_send(SENT)
    [[sent]] = offered.traces
    assert isinstance(sent, MessageSent)
    assert (sent.at_ms, sent.took_ms, sent.body_length) == (100, 7, 5)
    assert (sent.message_id, sent.tags, sent.keys) == ("M", "t", "k1 k2")
    assert (sent.store_host, sent.is_success) == ("127.0.0.1:10911", True)
    assert sent.offset_message_id == RESULT.offset_message_id


def test_unsent_messages_and_traces_are_not_traced() -> None:
    offered = Offered()
    traces = SendTraces("P", "TRACE", offered)
    traces.after_send(replace(SENT, result=None, error=Unreachable("x")))
    traces.after_send(replace(SENT, message=replace(MESSAGE, topic="TRACE")))
    assert not offered.traces
    timeout = RESULT._replace(status=SendStatus.FLUSH_DISK_TIMEOUT)
    traces.after_send(replace(SENT, result=timeout))
    [[sent]] = offered.traces
    assert isinstance(sent, MessageSent)
    assert not sent.is_success


def messages(*properties: dict[str, str]) -> list[StoredMessage]:
    records = [record("T", 0, b"x", each) for each in properties]
    return decode_records(b"".join(records), sizes_of(records), QUEUE)


def consumed(
    took: list[StoredMessage], outcome: ConsumeOutcome, unfinished: list[StoredMessage]
) -> list[Traces]:
    offered = Offered()
    traces = ConsumeTraces("TRACE", offered, Random(1))
    event = ConsumeEvent(group="G", queue=QUEUE, messages=took, began_at_ms=50)
    traces.before_consume(event)
    traces.after_consume(replace(event, took_ms=9, outcome=outcome, unfinished=unfinished))
    return offered.traces


def test_call_is_traced_when_it_begins_and_when_it_ends() -> None:
    one, two = messages({"UNIQ_KEY": "1", "KEYS": "k"}, {"UNIQ_KEY": "2", "MSG_REGION": "R"})
    began, ended = consumed([one, two], ConsumeOutcome.SUCCESS, [two])
    assert [each.message_id for each in began] == [each.message_id for each in ended] == ["1", "2"]
    first, last = began[0], ended[1]
    assert isinstance(first, ConsumeBegan)
    assert isinstance(last, ConsumeEnded)
    assert (first.at_ms, first.keys, first.region) == (50, "k", None)
    assert first.request_id == last.request_id
    assert len(first.request_id) == 32
    assert (last.took_ms, last.at_ms, last.is_success, last.code) == (4, 59, False, 4)
    done = ended[0]
    assert isinstance(done, ConsumeEnded)
    assert (done.is_success, done.code) == (True, 0)


@pytest.mark.parametrize("outcome", [each for each in ConsumeOutcome if each.value])
def test_failed_call_is_traced_with_its_error(outcome: ConsumeOutcome) -> None:
    took = messages({"UNIQ_KEY": "1"})
    [_, [ended]] = consumed(took, outcome, took)
    assert isinstance(ended, ConsumeEnded)
    assert (ended.is_success, ended.code) == (False, outcome.value)


def test_messages_that_opt_out_are_not_traced() -> None:
    took = messages({"UNIQ_KEY": "1", "TRACE_ON": "false"}, {"UNIQ_KEY": "2", "TRACE_ON": "true"})
    assert [
        [each.message_id for each in call] for call in consumed(took, ConsumeOutcome.SUCCESS, [])
    ] == [["2"], ["2"]]
    assert consumed(took[:1], ConsumeOutcome.SUCCESS, []) == []


def test_calls_on_traces_are_not_traced() -> None:
    offered = Offered()
    traces = ConsumeTraces("T", offered, Random(1))
    event = ConsumeEvent(
        group="G", queue=QUEUE, messages=messages({"UNIQ_KEY": "1"}), began_at_ms=50
    )
    traces.before_consume(event)
    traces.after_consume(event)
    assert not offered.traces


def test_end_of_a_transaction_is_traced() -> None:
    offered = Offered()
    traces = SendTraces("P", "TRACE", offered)
    traces.transaction_ended(MESSAGE, RESULT, "COMMIT_MESSAGE", at_ms=9)
    [[ended]] = offered.traces
    assert isinstance(ended, TransactionEnded)
    assert (ended.state, ended.at_ms, ended.message_id) == ("COMMIT_MESSAGE", 9, "M")
