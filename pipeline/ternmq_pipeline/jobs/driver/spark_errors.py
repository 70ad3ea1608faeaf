"""What Spark fails with, as an error of ours that tells the reason in one line."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ternmq_model.errors import JobFailed
from ternmq_pipeline.jobs.driver.batch_progress import reason_of


@contextmanager
def failures_of(job: str) -> Generator[None]:
    """Raise as JobFailed what Spark fails with inside the block, or that its JVM is gone.

    Args:
        job: Its name.
    """
    from pyspark.errors import PySparkException

    protocol: Any = import_module("py4j.protocol")
    try:
        yield
    except PySparkException as error:
        raise JobFailed(f"{job}: {reason_of(str(error))}") from error
    except protocol.Py4JJavaError as error:
        raise JobFailed(f"{job}: {reason_of(str(error.java_exception))}") from error
    except jvm_gone() as error:
        raise JobFailed(f"{job}: Spark has ended, its JVM does not answer: {error}") from error


def jvm_gone() -> tuple[type[Exception], ...]:
    """Return the errors by which Py4J tells that its JVM does not answer."""
    protocol: Any = import_module("py4j.protocol")
    return protocol.Py4JError, ConnectionRefusedError, ConnectionResetError
