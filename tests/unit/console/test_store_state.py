from pathlib import Path

import pytest

from ternmq_console.store_state import check_tables, known_topics, unreadable_tables
from tests.support.files import MemoryFileSystem

ROOT = Path("/broker")
CONFIG = ROOT / "config"
TOPICS = (
    b'{"topicConfigTable":{"A":{"readQueueNums":1,"writeQueueNums":1,"perm":6},'
    b'"B":{"readQueueNums":1,"writeQueueNums":1,"perm":6}}}'
)
BROKEN = b'{"topicConfigTable":'


def files_with(**tables: bytes) -> MemoryFileSystem:
    """Return a directory with tables, `_bak` in a name for that of the generation before."""
    files = MemoryFileSystem()
    files.make_folder(CONFIG)
    for name, text in tables.items():
        path = CONFIG / f"{name.removesuffix('_bak')}.json{'.bak' * name.endswith('_bak')}"
        files.open(path, create=True).write(0, text)
    return files


def faults(files: MemoryFileSystem) -> list[tuple[Path | None, str]]:
    """Return file and reason of each problem."""
    return [(finding.file, finding.text) for finding in check_tables(files, ROOT)]


def test_topics_are_known_while_their_table_can_be_read() -> None:
    assert known_topics(files_with(topics=TOPICS), ROOT) == {"A", "B"}
    assert known_topics(files_with(topics=BROKEN), ROOT) is None
    assert known_topics(files_with(), ROOT) is None


def test_sound_tables_have_no_fault() -> None:
    files = files_with(topics=TOPICS, delayOffset=b'{"offsetTable":{"3":8}}', foreign=b"{}")
    assert faults(files) == []
    assert unreadable_tables(files, ROOT) == []


@pytest.mark.parametrize(
    ("before", "rest"),
    [
        ({}, "there is no generation before it"),
        ({"topics_bak": b"no"}, "the generation before cannot be read either"),
        ({"topics_bak": TOPICS}, "the next start takes the generation before, topics.json.bak"),
    ],
)
def test_broken_table_is_told_with_what_the_next_start_takes(
    before: dict[str, bytes], rest: str
) -> None:
    files = files_with(topics=BROKEN, **before)
    ((path, text),) = faults(files)
    assert path == CONFIG / "topics.json"
    assert text.startswith("cannot be read: ")
    assert text.endswith(rest)
    expected = [] if before.get("topics_bak") == TOPICS else [CONFIG / "topics.json"]
    assert unreadable_tables(files, ROOT) == expected


def test_table_of_which_only_the_generation_before_is_left_is_told() -> None:
    files = files_with(topics_bak=TOPICS)
    assert faults(files) == [
        (
            CONFIG / "topics.json",
            "is not there; the next start takes the generation before, topics.json.bak",
        )
    ]
    assert unreadable_tables(files, ROOT) == []
