"""Spans of the messages that a producer sends."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ternmq_client.telemetry.client_telemetry import ClientTelemetry
from ternmq_client.telemetry.send_spans import SendSpans, TracedMessages, attributes_of_message
from ternmq_client.telemetry.telemetry import TRACE_PARENT, Telemetry
from ternmq_model.errors import Unreachable
from ternmq_model.message import Message, SendResult, SystemMessage


def spans_of(ratio: float = 1.0) -> tuple[SendSpans, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    client = ClientTelemetry(Telemetry(provider, trace_ratio=ratio), lambda: 0.0, Random(1))
    return SendSpans(client), exporter


def test_traced_messages_replace_some_of_a_sequence() -> None:
    messages = [Message("t", b"%d" % index) for index in range(5)]
    traced = TracedMessages(messages, {1: Message("t", b"one"), 4: Message("t", b"four")})
    assert [message.body for message in traced] == [b"0", b"one", b"2", b"3", b"four"]
    assert [message.body for message in traced[1:3]] == [b"one", b"2"]
    assert [message.body for message in traced[3:]] == [b"3", b"four"]


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


def test_failure_of_a_call_ends_every_span_with_its_error() -> None:
    spans, exporter = spans_of()

    async def send(messages: Sequence[Message]) -> Sequence[SendResult]:
        raise Unreachable("no")

    with pytest.raises(Unreachable):
        asyncio.run(spans.send_many([Message("t", b"")] * 2, send))
    found = exporter.get_finished_spans()
    assert [span.name for span in found] == ["create t", "create t", "send t"]
    assert {str((span.attributes or {})["error.type"]) for span in found} == {"Unreachable"}


def test_cancelled_call_ends_every_span() -> None:
    spans, exporter = spans_of()

    async def send(messages: Sequence[Message]) -> Sequence[SendResult]:
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
