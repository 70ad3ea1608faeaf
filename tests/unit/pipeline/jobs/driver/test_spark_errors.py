from typing import Any

import pytest

from ternmq_model.errors import JobFailed
from ternmq_pipeline.jobs.driver.spark_errors import failures_of

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
