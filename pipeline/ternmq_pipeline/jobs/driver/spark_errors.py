"""Errors of Spark as ours, with the reason in one line."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from ternmq_model.errors import JobFailed


@contextmanager
def failures_of(job: str) -> Generator[None]:
    """Raise as JobFailed what Spark fails with inside the block, or that its JVM is gone."""
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


_RAISED: Final = re.compile(r"^(?:\w+\.)*(\w+): (.+)", re.MULTILINE)
_OURS: Final = re.compile(
    r"(?:^|: )ternmq_\w+(?:\.\w+)*\.\w+: "
    r"(.+(?:\n(?!\s*(?:\tat|at|File|Trace|SQLSTATE|JVM|===|\*)).+)*)",
    re.MULTILINE,
)
"""An error of ours behind Spark's words or a traceback, with the lines that belong to its text."""

_NOISE: Final = re.compile(
    r"\[[A-Z0-9_.]{4,}\] |Query \[id = [^\]]*\] terminated with exception: | SQLSTATE: \w+"
    r"|; line \d+ pos \d+|Traceback \(most recent call last\):"
)
"""Parts of Spark's texts that refer to its own documentation."""

_TEXT_MAX: Final = 600


def reason_of(text: str) -> str:
    """Return what went wrong from the text of an error of Spark's: pages, and one line of ours.

    Where the traceback of a worker names an error of ours, that one tells it all; else the
    first line does.
    """
    found = _OURS.findall(text)
    if found:
        return " ".join(found[-1].split())[:_TEXT_MAX]
    lines = [line for line in text.strip().splitlines() if line.strip()]
    first = _NOISE.sub("", lines[0]).strip(" :;") if lines else "no reason is told"
    raised = [each for each in _RAISED.findall(text) if each[0].endswith(("Error", "Exception"))]
    if raised and raised[-1][1] not in first:
        first = f"{first}: {raised[-1][0]}: {raised[-1][1]}"
    return first[:_TEXT_MAX]
