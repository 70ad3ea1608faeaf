"""Arguments that cannot be meant."""
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial, wraps
from typing import Any, cast
from unittest.mock import AsyncMock, MagicMock, Mock, create_autospec, patch

import numpy as np
import pytest

from ternmq_model.arguments import (
    check_function,
    check_interceptors,
    check_kinds,
    check_range,
    check_seconds,
    check_time_ms,
    check_whole,
    fault_of_function,
    fault_of_seconds,
    fault_of_span_ms,
    fault_of_time_ms,
    is_async,
    is_whole,
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


def with_session(function: Callable[..., Any]) -> Callable[..., Any]:
    """Supply a second argument, as decorators do that open a session."""

    @wraps(function)
    def call(message: object) -> Any:
        return function(message, "session")

    return call


@with_session
def supplied(message: object, session: str) -> None: ...


@patch("time.sleep")
def patched(message: object, sleep: Mock) -> None: ...


async def waits(message: object) -> None: ...


class Waits:
    async def __call__(self, message: object) -> None: ...


@pytest.mark.parametrize("function", [waits, partial(waits, 1), Waits(), AsyncMock()])
def test_function_to_be_awaited_is_told(function: object) -> None:
    assert is_async(function)


@pytest.mark.parametrize(
    "function", [Mock(spec=no_parameter), MagicMock(spec=no_parameter), print, 5]
)
def test_other_values_are_not_awaited(function: object) -> None:
    assert not is_async(function)


@pytest.mark.parametrize("value", [np.int64(5), np.uint8(5), 5, 1 << 80])
def test_whole_numbers_of_other_libraries_are_whole(value: object) -> None:
    assert is_whole(value)
    assert fault_of_span_ms(value) is None


@pytest.mark.parametrize("value", [np.float64(5), 5.0, True, np.bool_(1), "5", None, Decimal(5)])
def test_other_numbers_are_not_whole(value: object) -> None:
    assert not is_whole(value)


@pytest.mark.parametrize(
    "value", [np.float32(1.5), np.float64(1.5), Decimal("1.5"), Fraction(3, 2)]
)
def test_seconds_of_any_real_type_become_floats(value: object) -> None:
    seconds = check_seconds("timeout_s", value)
    assert (seconds, type(seconds)) == (1.5, float)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), Decimal("inf"), np.float64("nan")])
def test_seconds_without_an_end_are_refused(value: object) -> None:
    with pytest.raises(UsageError, match="must be seconds, a finite number"):
        check_seconds("timeout_s", value)


@pytest.mark.parametrize("value", [0, -1, 5, NOON_S * 1000, 253_402_300_799_999])
def test_time_in_milliseconds_may_be_meant(value: int) -> None:
    assert fault_of_time_ms(value) is None
    assert type(check_time_ms("at_ms", np.int64(value))) is int


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
        supplied,
        patched,
        Mock(),
        Mock(spec=no_parameter),
        MagicMock(spec=no_parameter),
        AsyncMock(spec=no_parameter),
        create_autospec(Callables(), instance=True),
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
        (yields, "contains a yield"),
        (yields_async, "contains a yield"),
    ],
)
def test_value_that_cannot_be_called_so_is_refused(value: Any, told: str) -> None:
    with pytest.raises(UsageError, match="listener=") as refused:
        check_function("listener", value, 1)
    assert told in str(refused.value)


def test_missing_function_is_refused_unless_it_is_optional() -> None:
    check_function("listener", None, 1, optional=True)
    with pytest.raises(UsageError, match="check=None must be a function"):
        check_function("check", None, 1)


def test_coroutine_instead_of_its_function_is_refused() -> None:
    async def listen() -> None: ...

    called = listen()
    try:
        assert "without parentheses" in str(fault_of_function(called, 1))
    finally:
        called.close()


def test_interceptors_are_several_with_their_methods() -> None:
    one = Callables()
    for given in ([one], (one,), iter([one]), map(lambda each: each, {one})):
        assert check_interceptors(given, "takes_one") == (one,)
    with pytest.raises(UsageError, match=r"is a class: give an instance, Callables\(\)"):
        check_interceptors([Callables], "takes_one")
    with pytest.raises(UsageError, match="must be a list"):
        check_interceptors(cast("Any", one), "takes_one")
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
    settings = Settings(count=cast("int", np.int8(7)), wait_s=cast("float", Decimal(2)))
    check_kinds("some", settings)
    assert (type(settings.count), type(settings.wait_s)) == (int, float)
    check_kinds("some", Settings(wait_s=3, text=None, needed=[]))
    with pytest.raises(ConfigError) as refused:
        check_kinds("some", Settings(**changes))
    assert told in str(refused.value)


def test_whole_numbers_have_bounds() -> None:
    assert check_whole("next", 3, 1) == 3
    assert check_whole("next", 26, 1, 26) == 26
    for wrong in (0, -2, "3", 2.5, True, None):
        with pytest.raises(UsageError, match=r"^next=.* must be a whole number of at least 1$"):
            check_whole("next", wrong, 1)
    with pytest.raises(UsageError, match="brokers=27 must be a whole number from 1 to 26"):
        check_whole("brokers", 27, 1, 26)


def test_seconds_have_a_lower_bound() -> None:
    assert check_seconds("timeout_s", 0, least=0) == 0.0
    with pytest.raises(UsageError, match="timeout_s=-1 must be seconds, at least 0"):
        check_seconds("timeout_s", -1, least=0)


def test_settings_have_bounds() -> None:
    check_range("broker.port", 0, 0, 9)
    check_range("broker.port", 9, 0, 9)
    for wrong in (-1, 10, float("nan")):
        with pytest.raises(ConfigError, match=f"broker.port={wrong}: must be 0 to 9"):
            check_range("broker.port", wrong, 0, 9)
