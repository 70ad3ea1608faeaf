"""Which errors hide the traceback of Spark's worker, without Spark."""

import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ternmq_model.errors import UsageError
from ternmq_pipeline import short_errors
from ternmq_pipeline.short_errors import HIDE_TRACEBACK


@short_errors.short_errors
class Reader:
    """What Spark calls."""

    def partitions(self, error: Exception | None) -> list[int]:
        """Fail at once, or answer."""
        if error is not None:
            raise error
        return [1, 2]

    def read(self, error: Exception) -> Iterator[int]:
        """Fail after a row."""
        yield 1
        raise error


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process pass for one of Spark's workers."""
    monkeypatch.setenv(HIDE_TRACEBACK, "")
    monkeypatch.setattr(
        sys.modules["__main__"], "__spec__", SimpleNamespace(name="pyspark.daemon"), raising=False
    )


def hides() -> bool:
    """Tell whether Spark would hide the traceback now."""
    return bool(os.environ.get(HIDE_TRACEBACK))


@pytest.mark.usefixtures("worker")
def test_error_raised_on_purpose_hides_the_traceback_of_a_worker() -> None:
    with pytest.raises(UsageError, match="no such option"):
        Reader().partitions(UsageError("no such option"))
    assert hides()


@pytest.mark.usefixtures("worker")
def test_error_of_a_later_row_hides_it_when_it_is_raised() -> None:
    rows = Reader().read(UsageError("gone"))
    assert next(rows) == 1
    assert not hides()
    with pytest.raises(UsageError, match="gone"):
        next(rows)
    assert hides()


@pytest.mark.usefixtures("worker")
def test_other_errors_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        Reader().partitions(ZeroDivisionError())
    with pytest.raises(KeyError):
        list(Reader().read(KeyError("x")))
    assert Reader().partitions(None) == [1, 2]
    assert not hides()


def test_processes_that_are_no_workers_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE_TRACEBACK, "")
    with pytest.raises(UsageError):
        Reader().partitions(UsageError("x"))
    assert not hides()
