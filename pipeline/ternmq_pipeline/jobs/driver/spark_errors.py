"""Errors of Spark as errors of TernMQ, with the reason in one line."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from ternmq_model.errors import JobFailed


@contextmanager
def failures_of(job: str) -> Generator[None]:
    """Raise JobFailed for errors of Spark inside the block, and for the end of its JVM."""
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
    """Return Py4J's errors for a JVM that does not answer."""
    protocol: Any = import_module("py4j.protocol")
    return protocol.Py4JError, ConnectionRefusedError, ConnectionResetError


_RAISED: Final = re.compile(r"^(?:\w+\.)*(\w+): (.+)", re.MULTILINE)
_OURS: Final = re.compile(
    r"(?:^|: )ternmq_\w+(?:\.\w+)*\.\w+: "
    r"(.+(?:\n(?!\s*(?:\tat|at|File|Trace|SQLSTATE|JVM|===|\*)).+)*)",
    re.MULTILINE,
)
"""Pattern of an error of TernMQ behind Spark's text or a traceback, with its further lines."""

_NOISE: Final = re.compile(
    r"\[[A-Z0-9_.]{4,}\] |Query \[id = [^\]]*\] terminated with exception: | SQLSTATE: \w+"
    r"|; line \d+ pos \d+|Traceback \(most recent call last\):"
)
"""Parts of Spark's texts that refer to its own documentation."""

_TEXT_MAX: Final = 600


def reason_of(text: str) -> str:
    """Return the reason in the text of an error of Spark, which may have pages.

    The reason is the error of TernMQ in a worker's traceback, else the first line of the text.
    """
    found = _OURS.findall(text)
    if found:
        return " ".join(found[-1].split())[:_TEXT_MAX]
    lines = [line for line in text.strip().splitlines() if line.strip()]
    first = _NOISE.sub("", lines[0]).strip(" :;") if lines else "no reason is known"
    raised = [each for each in _RAISED.findall(text) if each[0].endswith(("Error", "Exception"))]
    if raised and raised[-1][1] not in first:
        first = f"{first}: {raised[-1][0]}: {raised[-1][1]}"
    return first[:_TEXT_MAX]
