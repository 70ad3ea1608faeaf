"""Summaries of the flights of one carrier in one hour, computed without Spark. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

SENTINEL = "sentinel"
"""In place of a carrier: what closes the last hours."""

WATERMARK = timedelta(days=7)
"""Lateness at which a flight is dropped, relative to others.

A limited batch takes the same part of what waits in each queue. When Spark is far behind, these
parts end up to three days apart.
"""

COLUMNS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time"),
    *("sched_arr_time", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest"),
    *("air_time", "distance", "hour", "minute", "time_hour"),
)
"""Columns of the data set, in its order."""


class Place(NamedTuple):
    """Key by which flights are grouped."""

    carrier: str
    hour: datetime


@dataclass(frozen=True, slots=True)
class Summary:
    """The flights of one carrier in one hour."""

    flights: int
    mean_delay: float | None
    """Minutes behind the schedule at departure; None = of no flight is it known."""


def in_order(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield rows of the data set sorted by `time_hour`; those of one hour stay as they were.

    Args:
        lines: Without the header; sorted here because a line needs a tenth of a row's memory.
    """
    for line in sorted(lines, key=lambda line: line.rsplit(",", 1)[1]):
        yield dict(zip(COLUMNS, line.split(","), strict=True))


def hour_of(row: Mapping[str, str]) -> datetime:
    """Return when a flight was to depart, to the hour."""
    return datetime.fromisoformat(row["time_hour"])


def computed(rows: Iterable[Mapping[str, str]]) -> dict[Place, Summary]:
    """Return what the stream must come to."""
    flights: dict[Place, int] = {}
    delays: dict[Place, list[int]] = {}
    for row in rows:
        place = Place(row["carrier"], hour_of(row))
        flights[place] = flights.get(place, 0) + 1
        if row["dep_delay"] not in ("", "NA"):
            delays.setdefault(place, []).append(int(row["dep_delay"]))
    return {
        place: Summary(
            count, sum(known) / len(known) if (known := delays.get(place)) is not None else None
        )
        for place, count in flights.items()
    }


def sentinel_row(last: datetime) -> dict[str, str]:
    """Return a row so late that the watermark closes every hour up to `last`."""
    moment = last + WATERMARK + timedelta(hours=2)
    row = dict.fromkeys(COLUMNS, "NA")
    return row | {"carrier": SENTINEL, "time_hour": f"{moment:%Y-%m-%dT%H:%M:%SZ}"}


def differences(expected: Mapping[Place, Summary], found: Mapping[Place, Summary]) -> list[Place]:
    """Return the places that only one of both has, or that they do not agree on, sorted."""
    return sorted(
        place
        for place in expected.keys() | found.keys()
        if not _agree(expected.get(place), found.get(place))
    )


def _agree(one: Summary | None, other: Summary | None) -> bool:
    if one is None or other is None or one.flights != other.flights:
        return False
    if one.mean_delay is None or other.mean_delay is None:
        return one.mean_delay is other.mean_delay
    return math.isclose(one.mean_delay, other.mean_delay, rel_tol=1e-12, abs_tol=1e-12)
