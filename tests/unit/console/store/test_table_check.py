import errno
import json
from pathlib import Path

import pytest

from ternmq_broker.state.accepted_tables import plan_acceptance
from ternmq_broker.state.replication_record import ReplicationRecord
from ternmq_broker.state.table_formats import StoredTables
from ternmq_console.store.table_check import check_tables, known_topics, look_at_tables, table_words
from ternmq_model.errors import StateUnreadable
from ternmq_model.json_checksum import add_checksum
from ternmq_testing.memory.memory_files import MemoryFileSystem

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


def found_in(files: MemoryFileSystem, *noted: str) -> StoredTables:
    """Return the tables that are there, when the store's notes name some."""
    return look_at_tables(files, ROOT, noted)


def faults(files: MemoryFileSystem, *noted: str) -> list[tuple[Path | None, str]]:
    """Return file and reason of each finding."""
    found = found_in(files, *noted)
    return [(finding.file, finding.text) for finding in check_tables(files, ROOT, found)]


def test_topics_are_known_while_their_table_can_be_read() -> None:
    assert known_topics(files_with(topics=TOPICS), ROOT) == {"A", "B"}
    assert known_topics(files_with(topics=BROKEN), ROOT) is None
    assert known_topics(files_with(), ROOT) is None


def test_sound_tables_have_no_fault() -> None:
    files = files_with(topics=TOPICS, delayOffset=b'{"offsetTable":{"3":8}}', foreign=b"{}")
    assert faults(files) == []
    assert table_words(ROOT, found_in(files)) == []


@pytest.mark.parametrize(
    ("before", "rest"),
    [
        ({}, "there is no generation before it"),
        ({"topics_bak": b"no"}, "value expected at character 0, found 'no'"),
        (
            {"topics_bak": TOPICS},
            "the next start takes the generation before, topics.json.bak: topics created since are"
            " found by their queues",
        ),
    ],
)
def test_broken_table_is_told_with_what_the_next_start_takes(
    before: dict[str, bytes], rest: str
) -> None:
    files = files_with(topics=BROKEN, **before)
    ((path, text),) = faults(files)
    assert path == CONFIG / "topics.json"
    assert text.startswith("is damaged: ")
    assert text.endswith(rest)
    said = table_words(ROOT, found_in(files))
    if before.get("topics_bak") == TOPICS:
        assert not said
    else:
        (sentence,) = said
        assert "does not start: no start without these tables: /broker/config/topics" in sentence


def test_unreadable_table_is_told_with_the_refusal_of_a_start() -> None:
    files = files_with(topics=TOPICS, topics_bak=TOPICS)
    files.unreadable[CONFIG / "topics.json"] = PermissionError(errno.EACCES, "Permission denied")
    ((path, text),) = faults(files)
    assert path == CONFIG / "topics.json"
    assert text == (
        "exists but cannot be read: Permission denied; the broker does not start before it can be"
    )
    (sentence,) = table_words(ROOT, found_in(files))
    assert sentence.startswith("The broker does not start: /broker/config/topics.json exists but")
    with pytest.raises(StateUnreadable):
        plan_acceptance(found_in(files))


def test_table_of_which_only_the_generation_before_is_left_is_told() -> None:
    files = files_with(topics_bak=TOPICS)
    ((path, text),) = faults(files)
    assert path == CONFIG / "topics.json"
    assert text.startswith("is not there; the next start takes the generation before, topics.json")
    assert table_words(ROOT, found_in(files)) == []


def test_gone_table_is_told_when_the_notes_name_it() -> None:
    files = files_with(topics=add_checksum(TOPICS.decode()))
    assert faults(files, "topics.json") == []
    noted = ("topics.json", "consumerOffset.json", "timercheck")
    assert faults(files, *noted) == [
        (CONFIG / name, "is not there; there is no generation before it") for name in noted[1:]
    ]
    (sentence,) = table_words(ROOT, found_in(files, *noted))
    assert "consumerOffset.json" in sentence
    assert "timercheck" in sentence


def test_slave_takes_lost_tables_from_its_master() -> None:
    kept = json.dumps(ReplicationRecord(is_master=False).to_dict())
    files = files_with(replication=kept.encode())
    (sentence,) = table_words(ROOT, found_in(files, "topics.json"))
    assert sentence.startswith("The slave takes a table from its master: ")


def test_table_rewritten_by_somebody_else_is_noted() -> None:
    files = files_with(topics=TOPICS)
    assert faults(files, "topics.json") == [
        (
            CONFIG / "topics.json",
            "has no checksum: another program wrote it since; the next start takes it as it is",
        )
    ]
