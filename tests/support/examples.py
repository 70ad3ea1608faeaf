"""How many examples random and exhaustive tests try, and from which seed: `TESTS_EXAMPLES`.

| value | how many | drawn | for |
|---|---|---|---|
| `few` | a sixteenth, a third of seeds | the same each time | `make check`, `make test`, 3.12 |
| `fixed` | all | the same each time | processes, networks, containers, Spark; `pytest` alone |
| `fresh` | all | anew | the newest Python of `make test-all`, scenarios too |
| `soak` | very many | anew | `make soak` |
"""

import os
import random
from collections.abc import Sequence
from typing import Final, TypeVar

from hypothesis import HealthCheck, settings

DRAWN: Final = os.environ.get("TESTS_EXAMPLES", "fixed")
assert DRAWN in ("few", "fixed", "fresh", "soak"), f"TESTS_EXAMPLES={DRAWN}"
IS_SOAK: Final = DRAWN == "soak"

_IS_NEW: Final = DRAWN in ("fresh", "soak")
if _IS_NEW:
    os.environ.setdefault("TESTS_SEED", str(random.SystemRandom().randrange(1, 1 << 32)))
_IS_TOLD: Final = "TESTS_SEED" in os.environ
SEED: Final = int(os.environ.get("TESTS_SEED", "1"))
"""Seed of tests that draw moments and schedules; a failure prints it. Processes that share the
tests of one run share it, too."""

_PART: Final = 16
_EXAMPLES_MIN: Final = 5
_POINTS_MIN: Final = 3

Point = TypeVar("Point")


def examples(usual: int, *, soak: int = 5_000) -> int:
    """Return how many examples a random test draws.

    Args:
        usual: Where all are drawn.
        soak: In a soak.
    """
    return {"few": max(usual // _PART, _EXAMPLES_MIN), "soak": soak}.get(DRAWN, usual)


def seeds(usual: int, *, soak: int, first: int = 0) -> range:
    """Return the seeds of a scenario, new ones where fresh ones are wanted.

    Args:
        usual: How many, where all are tried; a third of them where few are wanted.
        soak: How many in a soak.
        first: Where those that are not new begin.
    """
    begin = SEED if _IS_TOLD else first
    count = {"few": max(usual // 3, 1), "soak": soak}.get(DRAWN, usual)
    return range(begin, begin + count)


def points(every: Sequence[Point]) -> Sequence[Point]:
    """Return every point that an exhaustive test tries, or some of them where few are wanted."""
    step = max(1, min(_PART, len(every) // _POINTS_MIN))
    return every[::step] if DRAWN == "few" else every


def load_profile() -> None:
    """Tell hypothesis. Machines differ in speed, so no example has a deadline."""
    settings.register_profile(
        DRAWN,
        deadline=None,
        derandomize=DRAWN in ("few", "fixed"),
        # A failure prints the blob that repeats it.
        print_blob=True,
        max_examples=examples(100),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile(DRAWN)
