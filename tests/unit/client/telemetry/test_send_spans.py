"""Spans of the messages that a producer sends."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from ternmq_client.telemetry import send_spans
from ternmq_client.telemetry.client_telemetry import ClientTelemetry
from ternmq_client.telemetry.send_spans import SendSpans, TracedMessages, attributes_of_message
from ternmq_client.telemetry.telemetry import TRACE_PARENT, Telemetry
from ternmq_model.errors import Unreachable
from ternmq_model.message import Message, SendResult, SendStatus, SystemMessage
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import TRANSACTION_PREPARED
from ternmq_model.queue import MessageQueue


def spans_of(ratio: float = 1.0) -> tuple[SendSpans, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    client = ClientTelemetry(Telemetry(provider, trace_ratio=ratio), lambda: 0.0, Random(1))
    return SendSpans(client), exporter


def result(message_id: str) -> SendResult:
    queue = MessageQueue("t", "a", 0)
    offsets = QueueOffset(0), PhysicalOffset(0)
    return SendResult(SendStatus.SEND_OK, message_id, queue, *offsets, b"\x7f\0\0\1\0\0\x2a\x9f")


def test_slices_of_traced_messages_have_contexts_made_once() -> None:
    messages = [Message("t", b"%d" % index) for index in range(5)]
    made: list[bytes] = []

    def create(message: Message) -> tuple[Message, None]:
        made.append(message.body)
        return Message("t", b"traced"), None

    traced = TracedMessages(messages, [1, 4], create)
    assert traced[1].body == b"1"  # for its size alone
    assert [message.body for message in traced[1:3]] == [b"traced", b"2"]
    assert made == [b"1"]
    assert [message.body for message in traced[:]] == [b"0", b"traced", b"2", b"3", b"traced"]
    assert made == [b"1", b"4"]
    assert traced.created.keys() == {1, 4}


def test_call_with_many_spans_is_overtaken_by_no_other_send() -> None:
    spans, _ = spans_of()
    order: list[int] = []

    async def send(messages: Sequence[Message]) -> Sequence[SendResult]:
        order.append(len(messages))
        raise Unreachable("no")

    async def main() -> None:
        calls = [spans.send_many([Message("t", b"")] * count, send) for count in (100, 1)]
        await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(main())
    assert order == [100, 1]


def test_oldest_half_messages_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_spans, "_HALVES_MAX", 2)
    spans, _ = spans_of()
    half = SystemMessage("t", b"", system_properties={TRANSACTION_PREPARED: "true"})
    for name in "abc":
        _, end = spans.begin(half)
        end(result(message_id=name))
    assert [bool(spans.take_half(name)) for name in "abc"] == [False, True, True]


def test_illegal_message_is_sent_as_it_is() -> None:
    spans, exporter = spans_of()
    wrong = Message("t", None)  # type: ignore[arg-type]
    message, end = spans.begin(wrong)
    end(None)
    assert message is wrong
    assert not exporter.get_finished_spans()


def test_copy_keeps_the_attributes_of_the_client() -> None:
    spans, _ = spans_of()
    half = SystemMessage("t", b"", properties={"a": "1"}, system_properties={"B": "2"})
    message, _end = spans.begin(half)
    assert isinstance(message, SystemMessage)
    assert message.system_properties == {"B": "2"}
    assert message.properties.keys() == {"a", TRACE_PARENT}
    assert half.properties == {"a": "1"}


def test_message_that_is_sent_on_gets_a_context_of_its_own() -> None:
    spans, exporter = spans_of()
    received, _ = spans.begin(Message("t", b"", properties={"a": "1", "tracestate": "old=1"}))
    carrier = dict(received.properties) | {"tracestate": "old=1"}
    sent_on = Message("t", b"", properties=carrier)
    links = Telemetry().links([carrier])
    with TracerProvider().get_tracer("app").start_as_current_span("process t", links=links):
        message, end = spans.begin(sent_on)
    kept, _ = spans.begin(sent_on)  # no message is in hand: a context that the application chose
    end(None)
    (span,) = exporter.get_finished_spans()
    assert span.context is not None
    assert f"{span.context.span_id:016x}" in message.properties[TRACE_PARENT]
    assert message.properties.keys() == {"a", TRACE_PARENT}
    assert kept.properties == carrier


@pytest.mark.parametrize(
    "full",
    [
        Message("t", b"", properties={"a": "x" * 32_000}),
        Message("t", b"", tags="x" * 32_000),
        Message("t", b"", sharding_key="x" * 32_000),
    ],
)
def test_message_without_room_for_a_context_is_sent_as_it_is(full: Message) -> None:
    spans, exporter = spans_of()
    message, end = spans.begin(full)
    end(None)
    assert message is full
    assert len(exporter.get_finished_spans()) == 1


def test_failure_of_a_call_ends_every_span_with_its_error() -> None:
    spans, exporter = spans_of()

    async def send(messages: Sequence[Message]) -> Sequence[SendResult]:
        assert all(message.properties[TRACE_PARENT] for message in messages[:])
        raise Unreachable("no")

    with pytest.raises(Unreachable):
        asyncio.run(spans.send_many([Message("t", b"")] * 2, send))
    found = exporter.get_finished_spans()
    assert [span.name for span in found] == ["create t", "create t", "send t"]
    assert len(found[-1].links) == 2
    assert (found[-1].start_time or 0) <= (found[0].start_time or 0)
    assert {str((span.attributes or {})["error.type"]) for span in found} == {"Unreachable"}


def test_span_of_a_call_with_many_traced_messages_is_their_creation() -> None:
    spans, exporter = spans_of()
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    before = [Message("t", b"")] * 20 + [Message("t", b"", properties={TRACE_PARENT: own})]
    found: list[str] = []

    async def send(messages: Sequence[Message]) -> Sequence[SendResult]:
        found.extend(message.properties[TRACE_PARENT] for message in messages[:])
        return [result("a")] * len(messages)

    asyncio.run(spans.send_many(before, send))
    (span,) = exporter.get_finished_spans()
    assert span.context is not None
    assert (span.name, span.kind, len(span.links)) == ("send t", SpanKind.PRODUCER, 1)
    assert (span.attributes or {})["messaging.batch.message_count"] == 21
    assert len(set(found)) == 2
    assert found[-1] == own
    assert f"{span.context.span_id:016x}" in found[0]


@pytest.mark.parametrize("wrong", [{"topic": ["t"]}, {"properties": None}, {"body": None}])
@pytest.mark.parametrize("count", [1, 20])
def test_illegal_messages_of_a_call_are_sent_as_they_are(wrong: dict[str, Any], count: int) -> None:
    spans, _ = spans_of()
    illegal = replace(Message("t", b""), **wrong)

    async def send(messages: Sequence[Message]) -> Sequence[SendResult]:
        assert [message.body for message in messages[:]] == [illegal.body] * count
        return [result("a")] * len(messages)

    assert len(asyncio.run(spans.send_many([illegal] * count, send))) == count


def test_cancelled_call_ends_every_span() -> None:
    spans, exporter = spans_of()

    async def send(messages: Sequence[Message]) -> Sequence[SendResult]:
        assert len(messages[:]) == 1
        raise asyncio.CancelledError

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await spans.send_many([Message("t", b"")], send)

    asyncio.run(main())
    assert len(exporter.get_finished_spans()) == 2


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Message("t", b""), "normal"),
        (Message("t", b"", sharding_key="k"), "fifo"),
        (Message("t", b"", delay_level=1), "delay"),
        (SystemMessage("t", b"", system_properties={"TRAN_MSG": "true"}), "transaction"),
    ],
)
def test_attributes_have_the_type_of_the_message(message: Message, kind: str) -> None:
    assert attributes_of_message(message)["messaging.rocketmq.message.type"] == kind
