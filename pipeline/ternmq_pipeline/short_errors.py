"""Errors of TernMQ for Spark's users: one sentence, without the traceback of a worker.

A Python worker of Spark that fails sends a text to the JVM: a traceback of about fifteen lines and
the error's sentence, or the sentence alone if `SPARK_HIDE_TRACEBACK` is set in the worker's
environment (PySpark's `handle_worker_exception`). The worker reads the variable when it fails and
ends right after that. So the variable is set at that moment, and only for a `TernError`. All other
errors keep their traceback.
"""

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any, Final, TypeVar

from ternmq_model.errors import TernError

ClassT = TypeVar("ClassT", bound=type[Any])

HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


def main_module() -> str:
    """Return the name of this process' main module. In a worker it is a module of PySpark."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if spec is None else str(spec.name)


def short_errors(called_by_spark: ClassT) -> ClassT:
    """Hide the traceback of a TernError in public methods and the iterators they return.

    Inherited methods are not changed: decorate the base class too.
    """
    for name, found in list(vars(called_by_spark).items()):
        if isinstance(found, FunctionType) and not name.startswith("_"):
            setattr(called_by_spark, name, _short(found))
    return called_by_spark


def _short(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def called(*args: Any, **named: Any) -> Any:
        with _without_traceback():
            found = method(*args, **named)
        return _iterated(found) if hasattr(found, "__next__") else found

    return called


def _iterated(found: Iterator[Any]) -> Generator[Any]:
    with _without_traceback():
        yield from found


@contextmanager
def _without_traceback() -> Generator[None]:
    try:
        yield
    except TernError:
        if main_module().startswith("pyspark."):
            os.environ[HIDE_TRACEBACK] = "1"
        raise
