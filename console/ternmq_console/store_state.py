"""Whether the tables in a data directory's `config` folder can be read. Nothing is written."""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from ternmq_broker.consumer_filters import FilterTable
from ternmq_broker.consumer_offsets import OffsetTable
from ternmq_broker.delay_offsets import DelayOffsets
from ternmq_broker.groups import GroupTable
from ternmq_broker.loose_json import as_object, parse_json
from ternmq_broker.offset_versions import FILE_NAME as VERSIONS_FILE
from ternmq_broker.offset_versions import OffsetVersions
from ternmq_broker.state_files import read_table
from ternmq_broker.tables import config_folder
from ternmq_broker.topics import TopicTable
from ternmq_model.errors import StoreError
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.state_file import previous_path, read_whole
from ternmq_store.inspection.findings import Finding, problem

_TOPICS: Final = "topics.json"
_TABLES: Final[Mapping[str, Callable[[Mapping[str, Any]], object]]] = {
    _TOPICS: partial(TopicTable.from_dict, now_ms=0),
    "subscriptionGroup.json": partial(GroupTable.from_dict, now_ms=0),
    "consumerOffset.json": partial(OffsetTable.from_dict, now_ms=0),
    VERSIONS_FILE: OffsetVersions.from_dict,
    "delayOffset.json": partial(DelayOffsets.from_dict, now_ms=0),
    "consumerFilter.json": FilterTable.from_dict,
}
_SUFFIX: Final = ".json"


def known_topics(files: FileSystem, root: Path) -> Collection[str] | None:
    """Return the names of the topics that there are; None when that cannot be read."""
    path = config_folder(root) / _TOPICS
    if not files.exists(path):
        return None
    try:
        table = parse_json(read_whole(files, path).decode())
        return set(as_object(table.get("topicConfigTable", {}), "topicConfigTable"))
    except (OSError, ValueError):
        return None


def check_tables(files: FileSystem, root: Path) -> Generator[Finding]:
    """Give a problem for each table that the broker would not start with, or lost."""
    folder = config_folder(root)
    for name in files.files(folder):
        if name.endswith(_SUFFIX):
            reason = _fault(files, folder / name)
            if reason:
                yield problem(
                    "state", folder / name, None, f"{reason}; {_rest(files, folder / name)}"
                )
    for name in _TABLES:
        path = folder / name
        if not files.exists(path) and files.exists(previous_path(path)):
            yield problem("state", path, None, f"is not there; {_rest(files, path)}")


def unreadable_tables(files: FileSystem, root: Path) -> Sequence[Path]:
    """Return the tables of which no generation can be read: the broker does not start with them."""
    found: list[Path] = []
    for name, parse in _TABLES.items():
        try:
            read_table(files, config_folder(root) / name, parse)
        except StoreError:
            found.append(config_folder(root) / name)
    return found


def _fault(files: FileSystem, path: Path, name: str | None = None) -> str:
    """Return why a table cannot be read; empty when it can."""
    try:
        table = parse_json(read_whole(files, path).decode())
        parse = _TABLES.get(name or path.name)
        if parse is not None:
            parse(table)
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"cannot be read: {error}"
    return ""


def _rest(files: FileSystem, path: Path) -> str:
    previous = previous_path(path)
    if not files.exists(previous):
        return "there is no generation before it"
    if _fault(files, previous, path.name):
        return "the generation before cannot be read either"
    return f"the next start takes the generation before, {previous.name}"
