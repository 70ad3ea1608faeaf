from typing import Any

import pytest

from ternmq_model.errors import JobFailed
from ternmq_pipeline.jobs.driver.spark_errors import failures_of, reason_of

errors: Any = pytest.importorskip("pyspark.errors")
protocol: Any = pytest.importorskip("py4j.protocol")


def of_java(text: str) -> Exception:
    """Return what Py4J raises for an exception that PySpark has no class for."""
    error: Exception = protocol.Py4JJavaError.__new__(protocol.Py4JJavaError)
    vars(error)["java_exception"] = text
    return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (errors.PySparkException("no such host"), "replay: no such host"),
        (
            of_java("java.lang.RuntimeException: java.lang.ClassNotFoundException: Class S3A"),
            "replay: java.lang.RuntimeException: java.lang.ClassNotFoundException: Class S3A",
        ),
        (protocol.Py4JNetworkError("gone"), "replay: Spark has ended, its JVM does not answer: "),
        (ConnectionRefusedError(111, "refused"), "replay: Spark has ended, its JVM does not"),
    ],
)
def test_spark_failures_are_reported_in_one_line(error: Exception, told: str) -> None:
    with pytest.raises(JobFailed) as raised, failures_of("replay"):
        raise error
    assert str(raised.value).startswith(told)


def test_errors_of_others_are_left_as_they_are() -> None:
    with pytest.raises(BrokenPipeError), failures_of("replay"):
        raise BrokenPipeError


def test_failure_reason_is_our_own_line_among_pages_of_others() -> None:
    text = """[STREAM_FAILED] Query [id = 7c] terminated with exception: [PYTHON_STREAMING] Failed
Traceback (most recent call last):
  File "worker.py", line 7, in main
    check()
ternmq_model.errors.DataLost: T/a/0: wanted 3, but it begins with 9;
  failOnDataLoss=true
\tat org.apache.spark.Something.run(Something.scala:7)
java.lang.RuntimeException: other
"""
    assert reason_of(text) == "T/a/0: wanted 3, but it begins with 9; failOnDataLoss=true"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[PYTHON_DATA_SOURCE_ERROR] Failed to plan: ", "\n SQLSTATE: 38000"),
        ("An exception was thrown from the Python worker:\n", "\n\nJVM stacktrace:\norg.x"),
        (
            "[STREAM_FAILED] Query [id = 7c] terminated with exception: [P] Failed: ",
            "\n SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = 7c]",
        ),
    ],
)
def test_failure_reason_is_our_sentence_without_a_traceback(before: str, after: str) -> None:
    text = f"{before}ternmq_model.errors.DataLost: T/a/0: wanted 3;\n  more of it{after}"
    assert reason_of(text) == "T/a/0: wanted 3; more of it"


def test_failure_reason_is_first_line_and_exception_without_our_error() -> None:
    text = "[FAILED] it failed\n  File x\nValueError: no number\n\tat java.Thing"
    assert reason_of(text) == "it failed: ValueError: no number"
    text = (
        "[STREAM_X] Query [id = 1-a, runId = 2-b] terminated with exception: [USER_X] no such day"
    )
    assert reason_of(text) == "no such day"
    text = "[A.B_2] A column `x` cannot be found. SQLSTATE: 42703; line 1 pos 0;\n'Filter"
    assert reason_of(text) == "A column `x` cannot be found."
    assert reason_of("") == "no reason is known"
    assert len(reason_of("x" * 5_000)) < 1_000
