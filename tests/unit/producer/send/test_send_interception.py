import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from ternmq_client.interceptors import SendEvent, SendInterceptor
from ternmq_model.errors import IllegalMessage, SendVetoed, TernError, Unreachable
from ternmq_model.message import Message, SystemMessage
from ternmq_producer.send.send_interception import SendInterception


class FastClock:
    """A clock that goes 3 ms ahead with each look."""

    def __init__(self) -> None:
        self._now_ms = 97

    def monotonic_ms(self) -> int:
        self._now_ms += 3
        return self._now_ms

    wall_ms = monotonic_ms


def interception(*interceptors: SendInterceptor) -> SendInterception:
    return SendInterception("senders", interceptors, FastClock())


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
    message, after = interception(first, second).before(Message("T", b"body-"))
    assert message.body == b"body-ab"
    error = Unreachable("away")
    after(error)
    assert log == ["a+", "b+", "b-", "a-"]
    (event,) = first.events
    assert (event.group, event.message, event.took_ms) == ("senders", message, 3)
    assert event.began_at_ms == 100
    assert event.error is error
    assert event.result is None


@pytest.mark.parametrize("raised", [ValueError("no"), IllegalMessage("no")])
def test_veto_refuses_the_message_and_notifies_earlier_interceptors(raised: Exception) -> None:
    log: list[str] = []
    first, second = Recorder("a", log), Recorder("b", log, raised)
    third = Recorder("c", log)
    with pytest.raises(TernError) as caught:
        interception(first, second, third).before(Message("T", b""))
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
    _, after = interception(Recorder("a", log), Broken("b", log)).before(Message("T", b""))
    with caplog.at_level(logging.ERROR):
        after(Unreachable("away"))
    assert log == ["a+", "b+", "a-"]
    assert "interceptor failed" in caplog.text


def test_system_properties_cannot_be_dropped_by_an_interceptor() -> None:
    class Careless:
        def __init__(self, answer: Callable[[Message], Any]) -> None:
            self._answer = answer

        def before_send(self, message: Message) -> Message:
            return cast("Message", self._answer(message))

        def after_send(self, event: SendEvent) -> None:
            raise AssertionError("it has refused the message itself")

    half = SystemMessage("T", b"", system_properties={"TRAN_MSG": "true"})
    good = interception(Careless(lambda _: replace(half, body=b"more")))
    assert good.before(half)[0] == replace(half, body=b"more")
    wrong: list[Callable[[Message], Any]] = [
        lambda _: None,
        lambda one: Message(one.topic, one.body),
        lambda _: replace(half, system_properties={}),
    ]
    for answer in wrong:
        with pytest.raises(SendVetoed, match="before_send"):
            interception(Careless(answer)).before(half)
