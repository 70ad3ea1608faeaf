"""Errors raised on purpose reach Spark's user as their sentence, without a worker's traceback.

Spark's Python workers send a text to the JVM when they fail: a traceback of some fifteen lines and
then the sentence, or the sentence alone where the variable `SPARK_HIDE_TRACEBACK` is set in the
worker's environment (PySpark's `handle_worker_exception`). They look at it when they fail, and end
right after that; so it is set there, for a `TernError` alone. Errors of any other kind, ours or of
the user's functions, keep their traceback.
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
    """Return the name of the module that this process runs: one of PySpark's in its workers."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if spec is None else str(spec.name)


def short_errors(called_by_spark: ClassT) -> ClassT:
    """Hide the traceback of a TernError in public methods and the iterators they return.

    Methods of its bases are theirs: decorate each class.
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
