"""Arguments that cannot be meant."""
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from ternmq_model.arguments import (
    check_function,
    check_interceptors,
    check_kinds,
    check_seconds,
    check_time_ms,
    fault_of_function,
    fault_of_seconds,
    fault_of_span_ms,
    fault_of_time_ms,
)
from ternmq_model.errors import ConfigError, UsageError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_S = int(NOON.timestamp())


class Callables:
    def takes_one(self, message: object) -> None: ...

    def __call__(self, message: object) -> None: ...


def no_parameter() -> None: ...


def yields(message: object) -> Any:
    yield message


async def yields_async(message: object) -> Any:
    yield message


@pytest.mark.parametrize("value", [0, -1, 5, NOON_S * 1000, 253_402_300_799_999])
def test_time_in_milliseconds_may_be_meant(value: int) -> None:
    assert fault_of_time_ms(value) is None
    check_time_ms("at_ms", value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (NOON, "int(when.timestamp() * 1000)"),
        (NOON_S, "1970-01-21"),
        (NOON_S * 1_000_000, "nanoseconds"),
        (NOON_S * 1_000_000_000, "nanoseconds"),
        (float(NOON_S), "a whole number"),
        ("noon", "a whole number"),
        (True, "a whole number"),
        (None, "a whole number"),
    ],
)
def test_time_in_another_form_is_refused(value: object, told: str) -> None:
    assert told in str(fault_of_time_ms(value))
    with pytest.raises(UsageError, match="at_ms="):
        check_time_ms("at_ms", value)


def test_spans_and_seconds_are_numbers_in_their_unit() -> None:
    assert fault_of_span_ms(5) is None
    assert "total_seconds() * 1000" in str(fault_of_span_ms(timedelta(1)))
    assert "whole number" in str(fault_of_span_ms(1.5))
    assert fault_of_seconds(1.5) is fault_of_seconds(0) is None
    assert "write span.total_seconds()" in str(fault_of_seconds(timedelta(1)))
    with pytest.raises(UsageError, match="timeout_s='3' must be seconds"):
        check_seconds("timeout_s", "3")


@pytest.mark.parametrize(
    "function",
    [
        lambda message: message,
        lambda *anything: anything,
        lambda message, more=1: (message, more),
        Callables().takes_one,
        Callables(),
        partial(lambda first, second: (first, second), 1),
        [].append,
        print,
    ],
)
def test_function_that_can_be_called_is_taken(function: Callable[..., Any]) -> None:
    assert fault_of_function(function, 1) is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (5, "must be a function"),
        (Callables, "is a class"),
        (no_parameter, "must take one argument"),
        (lambda first, second: (first, second), "must take one argument"),
        (yields, "has a yield"),
        (yields_async, "has a yield"),
    ],
)
def test_value_that_cannot_be_called_so_is_refused(value: Any, told: str) -> None:
    with pytest.raises(UsageError, match="listener=") as refused:
        check_function("listener", value, 1)
    assert told in str(refused.value)
    check_function("listener", None, 1)


def test_coroutine_instead_of_its_function_is_refused() -> None:
    async def listen() -> None: ...

    called = listen()
    try:
        assert "without parentheses" in str(fault_of_function(called, 1))
    finally:
        called.close()


def test_interceptors_are_several_with_their_methods() -> None:
    check_interceptors([Callables()], "takes_one")
    with pytest.raises(UsageError, match="must be a list"):
        check_interceptors(Callables(), "takes_one")
    with pytest.raises(UsageError, match="has no method before and after"):
        check_interceptors([Callables()], "before", "takes_one", "after")


@dataclass
class Settings:
    flag: bool = False
    count: int = 1
    wait_s: float = 1.0
    text: str | None = "free"
    needed: Any = None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"flag": "yes"}, "some.flag='yes': must be True or False"),
        ({"count": 1.0}, "some.count=1.0: must be a whole number"),
        ({"count": True}, "some.count=True: must be a whole number"),
        ({"wait_s": "1"}, "some.wait_s='1': must be seconds"),
    ],
)
def test_setting_of_another_type_than_its_default_is_refused(
    changes: dict[str, Any], told: str
) -> None:
    check_kinds("some", Settings(wait_s=3, text=None, needed=[]))
    with pytest.raises(ConfigError) as refused:
        check_kinds("some", Settings(**changes))
    assert told in str(refused.value)
