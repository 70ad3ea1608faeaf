"""Spark's log of the committed files of a folder, `_spark_metadata`. Pure.

The log has a file for each batch, named by the batch's number, with a line for each added file. A
file that ends with `.compact` has the lines of all batches up to it. Files of the folder without a
line are left over from interrupted batches.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from ternmq_model.errors import JobFailed

FOLDER: Final = "_spark_metadata"

_NAME: Final = re.compile(r"([0-9]{1,18})(\.compact)?", re.ASCII)
_VERSION: Final = "v1"


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """Committed file of a folder."""

    path: str
    """URI of the file."""

    bytes: int

    def partition(self, column: str) -> str | None:
        """Return the file's value of a partition column; None = no such column."""
        for part in self.path.split("/"):
            name, equals, value = part.partition("=")
            if equals and name == column:
                # Names are escaped twice: in the URI and by Spark itself.
                return unquote(unquote(value))
        return None


def log_files(names: Iterable[str]) -> list[str]:
    """Return the names of the log's files that list all committed files, in order.

    Args:
        names: Names in the folder of the log. Other names are ignored.
    """
    found: dict[int, str] = {}
    compact = -1
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            batch = int(match[1])
            if match[2]:
                compact = max(compact, batch)
            if match[2] or batch not in found:
                found[batch] = name
    return [found[batch] for batch in sorted(found) if batch >= compact]


def committed_files(
    names: Iterable[str], read: Callable[[str], str], *, location: str
) -> list[CommittedFile]:
    """Return the committed files of a folder.

    Args:
        names: Names of the log's files.
        read: Function that returns the text of a file of the log.
        location: Location of the log, for errors.

    Raises:
        JobFailed: The log cannot be read.
    """
    return [
        file
        for name in log_files(names)
        for file in files_of(read(name), name=f"{location}/{name}")
    ]


def last_batch(names: Iterable[str]) -> int:
    """Return the number of the last committed batch; −1 = none."""
    found = (_NAME.fullmatch(name) for name in names)
    return max((int(match[1]) for match in found if match), default=-1)


def files_of(text: str, *, name: str) -> list[CommittedFile]:
    """Return the files that one file of the log adds.

    Args:
        text: Content of the log's file.
        name: Name of the log's file, for errors.

    Raises:
        JobFailed: The text has another form.
    """
    version, *lines = text.splitlines() or [""]
    if version != _VERSION:
        raise JobFailed(f"{name}: is version {version[:20]!r} of Spark's log; {_VERSION} is read")
    found: list[CommittedFile] = []
    for line in lines:
        try:
            entry = json.loads(line)
            if entry["action"] == "add":
                found.append(CommittedFile(str(entry["path"]), int(entry["size"])))
        except (ValueError, KeyError, TypeError) as error:
            raise JobFailed(f"{name}: is no log of Spark's: {line[:80]!r}") from error
    return found
