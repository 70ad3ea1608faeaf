"""Telemetry of one client: the messages whose creation is linked."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from opentelemetry.metrics import NoOpHistogram, NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider

from ternmq_client.telemetry import client_telemetry
from ternmq_client.telemetry.client_telemetry import ClientTelemetry, sampled_records
from ternmq_client.telemetry.telemetry import TRACE_PARENT, Telemetry
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from tests.support.records import record

QUEUE = MessageQueue("flights", "a", 0)
OTHER = MessageQueue("flights", "a", 1)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def plain(body: bytes = b"body") -> bytes:
    return record(body=body, properties={"own": "1"})


def traced() -> bytes:
    return record(properties={TRACE_PARENT: PARENT})


def sizes_of(records: Sequence[bytes]) -> bytes:
    return np.array([len(each) for each in records], dtype="<i4").tobytes()


def bodies(records: Sequence[bytes]) -> list[StoredMessage]:
    return sampled_records(b"".join(records), sizes_of(records), QUEUE)


def client() -> ClientTelemetry:
    return ClientTelemetry(Telemetry(TracerProvider()), lambda: 0.0, Random(1))


def receive(telemetry: ClientTelemetry, queue: MessageQueue, records: Sequence[bytes]) -> None:
    telemetry.received(queue, b"".join(records), sizes_of(records), 0.0, "h:1", "g")


def test_records_without_a_context_are_not_decoded() -> None:
    assert not bodies([plain(), plain()])
    found = bodies([plain(), traced(), plain(), traced()])
    assert [message.properties[TRACE_PARENT] for message in found] == [PARENT] * 2
    assert all(message.queue == QUEUE for message in found)


def test_name_of_the_property_in_a_body_is_no_context() -> None:
    telemetry = client()
    receive(telemetry, QUEUE, [plain(b"traceparent\x01x")])
    assert not telemetry.committed({QUEUE: QueueOffset(9)})


def test_commit_returns_the_links_below_its_offset_once() -> None:
    telemetry = client()
    receive(telemetry, QUEUE, [traced()])
    receive(telemetry, OTHER, [traced()])
    assert not telemetry.committed({QUEUE: QueueOffset(0)})
    assert [len(telemetry.committed({QUEUE: QueueOffset(1)}) or ()) for _ in range(2)] == [1, 0]
    telemetry.forget([OTHER])
    assert not telemetry.committed({OTHER: QueueOffset(1)})


def test_newest_links_replace_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_telemetry, "_UNSETTLED_MAX", 1)
    telemetry = client()
    receive(telemetry, QUEUE, [traced()])
    receive(telemetry, OTHER, [traced()])
    assert not telemetry.committed({QUEUE: QueueOffset(1)})
    assert telemetry.committed({OTHER: QueueOffset(1)})


def test_failing_histogram_fails_no_client_that_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(NoOpHistogram, "record", fail)
    telemetry = Telemetry(TracerProvider(), NoOpMeterProvider())
    with ClientTelemetry(telemetry, lambda: 0.0, Random(1)) as first:
        first.answered("send", 0.0, "h:1")
