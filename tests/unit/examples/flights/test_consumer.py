"""What a consumer of the demo reports."""

import asyncio
import json
import os
from contextlib import AbstractAsyncContextManager, nullcontext

import pytest

import consumer
from flights import TOPIC
from ternmq import MessageQueue

QUEUES = [
    MessageQueue(f"%RETRY%{consumer.GROUP}", "broker-a", 0),
    *(MessageQueue(TOPIC, "broker-a", number) for number in range(4)),
]


class Member:
    """A push consumer that owns the queues of its topic and the retry topic's queue."""

    def assignment(self) -> list[MessageQueue]:
        """Return them all."""
        return QUEUES


def test_report_of_assigned_queues_leaves_the_retry_topic_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def entered(*_: object, **__: object) -> AbstractAsyncContextManager[Member]:
        return nullcontext(Member())

    monkeypatch.setattr(consumer, "PushConsumer", entered)
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading) as ended:
        monkeypatch.setattr("sys.stdin", ended)
        asyncio.run(consumer.main("127.0.0.1:9876"))
    assert json.loads(capsys.readouterr().out) == {"assigned": [0, 1, 2, 3]}
