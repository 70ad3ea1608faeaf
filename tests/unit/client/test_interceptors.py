import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from ternmq_client.interceptors import (
    ConsumeEvent,
    ConsumeInterceptors,
    SendEvent,
    SendInterceptors,
)
from ternmq_model.errors import IllegalMessage, SendVetoed, TernError, Unreachable
from ternmq_model.message import Message, SystemMessage
from ternmq_model.queue import MessageQueue


class Recorder:
    def __init__(self, name: str, log: list[str], error: Exception | None = None) -> None:
        self._name, self._log, self._error = name, log, error
        self.events: list[SendEvent] = []

    def before_send(self, message: Message) -> Message:
        self._log.append(f"{self._name}+")
        if self._error is not None:
            raise self._error
        return Message(message.topic, message.body + self._name.encode())

    def after_send(self, event: SendEvent) -> None:
        self._log.append(f"{self._name}-")
        self.events.append(event)


def test_first_interceptor_is_first_before_and_last_after() -> None:
    log: list[str] = []
    first, second = Recorder("a", log), Recorder("b", log)
    interceptors = SendInterceptors("senders", (first, second))
    message = interceptors.before(Message("T", b"body-"), now_ms=100)
    assert message.body == b"body-ab"
    error = Unreachable("away")
    interceptors.after(message, error, began_at_ms=100, now_ms=103)
    assert log == ["a+", "b+", "b-", "a-"]
    (event,) = first.events
    assert (event.group, event.message, event.took_ms) == ("senders", message, 3)
    assert event.error is error
    assert event.result is None


@pytest.mark.parametrize("raised", [ValueError("no"), IllegalMessage("no")])
def test_veto_refuses_the_message_and_notifies_earlier_interceptors(raised: Exception) -> None:
    log: list[str] = []
    first, second = Recorder("a", log), Recorder("b", log, raised)
    third = Recorder("c", log)
    interceptors = SendInterceptors("senders", (first, second, third))
    with pytest.raises(TernError) as caught:
        interceptors.before(Message("T", b""), now_ms=1)
    is_ours = isinstance(raised, TernError)
    assert isinstance(caught.value, IllegalMessage if is_ours else SendVetoed)
    assert is_ours or caught.value.__cause__ is raised
    assert not caught.value.retryable
    assert not caught.value.may_have_happened
    assert log == ["a+", "b+", "a-"]
    assert first.events[0].error is caught.value


def test_exceptions_after_sending_are_logged_and_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Recorder):
        def after_send(self, event: SendEvent) -> None:
            raise KeyError("broken")

    log: list[str] = []
    interceptors = SendInterceptors("senders", (Recorder("a", log), Broken("b", log)))
    with caplog.at_level(logging.ERROR):
        interceptors.after(Message("T", b""), None, began_at_ms=5, now_ms=4)
    assert log == ["a-"]
    assert "interceptor failed" in caplog.text


def test_listener_calls_are_intercepted_before_and_after() -> None:
    log: list[str] = []

    class Watcher:
        def __init__(self, name: str) -> None:
            self._name = name

        def before_consume(self, event: ConsumeEvent) -> None:
            log.append(f"{self._name}+{event.group}")

        def after_consume(self, event: ConsumeEvent) -> None:
            log.append(f"{self._name}-{event.group}")

    event = ConsumeEvent(
        group="readers", queue=MessageQueue("T", "b", 0), messages=(), began_at_ms=1
    )
    interceptors = ConsumeInterceptors((Watcher("a"), Watcher("b")))
    assert interceptors
    assert not ConsumeInterceptors(())
    interceptors.before(event)
    interceptors.after(event)
    assert log == ["a+readers", "b+readers", "b-readers", "a-readers"]


def test_system_properties_cannot_be_dropped_by_an_interceptor() -> None:
    class Careless:
        def __init__(self, answer: Callable[[Message], Any]) -> None:
            self._answer = answer

        def before_send(self, message: Message) -> Message:
            return cast("Message", self._answer(message))

        def after_send(self, event: SendEvent) -> None:
            raise AssertionError("it has refused the message itself")

    half = SystemMessage("T", b"", system_properties={"TRAN_MSG": "true"})
    good = SendInterceptors("senders", [Careless(lambda _: replace(half, body=b"more"))])
    assert good.before(half, now_ms=1) == replace(half, body=b"more")
    wrong: list[Callable[[Message], Any]] = [
        lambda _: None,
        lambda one: Message(one.topic, one.body),
        lambda _: replace(half, system_properties={}),
    ]
    for answer in wrong:
        with pytest.raises(SendVetoed, match="before_send"):
            SendInterceptors("senders", [Careless(answer)]).before(half, now_ms=1)
