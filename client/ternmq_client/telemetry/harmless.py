"""Protection of messages from errors of an application's telemetry."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def harmless(function: Callable[P, T]) -> Callable[P, T | None]:
    """Return `function` with its errors logged, the first one, and ignored: the result is None."""
    failures = [0]

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except Exception:
            failures[0] += 1
            if failures[0] == 1:
                logger.exception("telemetry failed call=%s", function.__qualname__)
            return None

    return called
