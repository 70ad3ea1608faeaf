"""Errors of telemetry stay in it."""

import pytest

from ternmq_client.telemetry.harmless import harmless


@harmless
def half(number: int) -> int:
    if number % 2:
        raise ValueError(number)
    return number // 2


def test_errors_become_none_and_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    assert [half(number) for number in (4, 3, 5)] == [2, None, None]
    assert [record.getMessage() for record in caplog.records] == ["telemetry failed call=half"]
