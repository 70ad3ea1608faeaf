import itertools
import logging

import pytest

from ternmq_broker.state.fastjson import parse_json, write_json
from ternmq_broker.state.offset_versions import VERSION_MAX, OffsetVersions
from ternmq_broker.state.offsets import OffsetTable, VersionedOffset
from ternmq_model.data_version import DataVersion
from ternmq_model.offsets import QueueOffset


def table() -> OffsetTable:
    return OffsetTable(DataVersion(0))


def commit(
    offsets: OffsetTable, offset: int, version: int = 0, *, force: bool = False, queue_id: int = 0
) -> bool:
    told = QueueOffset(offset)
    return offsets.commit("G", "T", queue_id, told, version, force=force, now_ms=1)


def test_unconsumed_queue_is_not_at_0() -> None:
    offsets = table()
    assert offsets.query("G", "T", 0) is None
    commit(offsets, 0)
    assert offsets.query("G", "T", 0) == 0


def test_offsets_only_rise_unless_forced() -> None:
    offsets = table()
    assert commit(offsets, 10)
    assert not commit(offsets, 5)
    assert offsets.query("G", "T", 0) == 10
    assert commit(offsets, 5, force=True)
    assert offsets.query("G", "T", 0) == 5


def test_commits_under_older_versions_are_refused_however_high() -> None:
    offsets = table()
    commit(offsets, 10)
    commit(offsets, 3, force=True)
    assert offsets.version("G", "T", 0) == 1
    assert not commit(offsets, 20, 0)
    assert (offsets.query("G", "T", 0), offsets.version("G", "T", 0)) == (3, 1)
    assert commit(offsets, 4, 1)
    assert offsets.version("H", "T", 0) == offsets.version("G", "T", 1) == 0


def test_version_lost_in_a_crash_is_taken_with_its_offset() -> None:
    offsets = table()
    commit(offsets, 10)
    assert commit(offsets, 2, 4)
    assert (offsets.query("G", "T", 0), offsets.version("G", "T", 0)) == (2, 4)
    assert not commit(offsets, 11, 3)


def test_seek_raises_the_version_above_the_known_one() -> None:
    offsets = table()
    commit(offsets, 10, 7, force=True)
    assert offsets.version("G", "T", 0) == 8


def test_offset_of_the_last_version_can_still_be_reset_and_read() -> None:
    offsets = table()
    commit(offsets, 10, VERSION_MAX)
    assert commit(offsets, 3, force=True)
    assert offsets.clamp("G", "T", 0, QueueOffset(2))
    text = write_json(offsets.versions.to_dict())
    assert OffsetVersions.from_dict(parse_json(text)).get("G", "T", 0) == VERSION_MAX


def test_forgotten_offsets_take_their_versions_along() -> None:
    offsets = table()
    commit(offsets, 10, force=True)
    offsets.commit("H", "T", 0, QueueOffset(1), force=True, now_ms=1)
    offsets.commit("H", "U", 0, QueueOffset(1), force=True, now_ms=1)
    offsets.remove_group("G")
    assert offsets.query("G", "T", 0) is None
    assert offsets.version("G", "T", 0) == 0
    assert offsets.version("H", "T", 0) == 1
    offsets.remove_topic("T")
    assert (offsets.query("H", "T", 0), offsets.version("H", "T", 0)) == (None, 0)
    assert (offsets.query("H", "U", 0), offsets.version("H", "U", 0)) == (1, 1)


def test_refusal_is_logged_once_until_the_state_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    offsets = table()
    commit(offsets, 10)
    with caplog.at_level(logging.WARNING):
        commit(offsets, 5)
        commit(offsets, 6)
        assert len(caplog.records) == 1
        commit(offsets, 11)
        commit(offsets, 5)
        assert len(caplog.records) == 2
    assert "group=G topic=T queue=0 offset=5 kept=11" in caplog.text


def test_saves_are_due_only_after_a_change() -> None:
    offsets = table()
    commit(offsets, 10)
    before = offsets.changes
    commit(offsets, 10)
    commit(offsets, 9)
    assert offsets.changes == before
    commit(offsets, 11)
    assert offsets.changes != before


def test_begin_counts_as_unsaved_until_the_file_holds_it() -> None:
    offsets = table()
    commit(offsets, 1)
    begun_at = offsets.changes
    commit(offsets, 2)
    offsets.merge(VersionedOffset("G", "T", 1, QueueOffset(0), 0))
    assert [offsets.has_unsaved_begin("G", "T", queue_id) for queue_id in range(3)] == [1, 1, 0]
    offsets.note_saved(begun_at - 1)
    assert offsets.has_unsaved_begin("G", "T", 0)
    offsets.note_saved(begun_at)
    assert [offsets.has_unsaved_begin("G", "T", queue_id) for queue_id in range(2)] == [0, 1]
    offsets.remove_group("G")
    saved_without = offsets.changes
    offsets.merge(VersionedOffset("G", "T", 1, QueueOffset(0), 0))
    offsets.note_saved(saved_without)
    assert offsets.has_unsaved_begin("G", "T", 1)


def test_offsets_are_found_by_group_and_by_topic() -> None:
    offsets = table()
    commit(offsets, 3, queue_id=1)
    commit(offsets, 4)
    offsets.commit("G", "%RETRY%G", 0, QueueOffset(1), now_ms=1)
    offsets.commit("H", "T", 0, QueueOffset(2), now_ms=1)
    assert offsets.topics_of("G") == {"%RETRY%G": {0: 1}, "T": {0: 4, 1: 3}}
    assert offsets.groups() == {"G", "H"}
    offsets.remove_topic("T")
    assert offsets.groups() == {"G"}
    assert offsets.query("G", "T", 0) is None


def test_version_rises_once_in_500_commits() -> None:
    offsets = table()
    for offset in range(500):
        commit(offsets, offset)
    assert offsets.to_dict()["dataVersion"]["counter"] == 1


def test_rocketmqs_file_is_read_and_written_strictly() -> None:
    text = '{"offsetTable":{"T@G":{0:10,1:12},"%RETRY%G@G":{0:-1}}}'
    offsets = OffsetTable.from_dict(parse_json(text), now_ms=1)
    assert offsets.query("G", "T", 1) == 12
    assert offsets.query("G", "%RETRY%G", 0) is None
    again = parse_json(write_json(offsets.to_dict()))
    assert again["offsetTable"] == {"T@G": {"0": 10, "1": 12}}


@pytest.mark.parametrize(
    "text", ['{"T":{0:1}}', '{"T@G":[1]}', '{"T@G":{"x":1}}', '{"T@G":{0:"1"}}', '{"T@G":{-1:1}}']
)
def test_malformed_offsets_are_an_error_and_never_0(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        OffsetTable.from_dict(parse_json(f'{{"offsetTable":{text}}}'), now_ms=1)


def test_unknown_fields_of_later_rocketmq_are_written_back() -> None:
    text = '{"offsetTable":{"T@G":{0:5}},"groupTopicMap":{"G":["T"],"gone":["U"]},"later":[1]}'
    table = OffsetTable.from_dict(parse_json(text), now_ms=1)
    written = table.to_dict()
    del written["dataVersion"]
    assert written == parse_json(
        '{"offsetTable":{"T@G":{"0":5}},"groupTopicMap":{"G":["T"]},"later":[1]}'
    )


def kept(offset: int | None, version: int = 0) -> VersionedOffset:
    return VersionedOffset("G", "T", 0, None if offset is None else QueueOffset(offset), version)


@pytest.mark.parametrize(
    ("here", "there", "newer"),
    [
        ((5, 0), (6, 0), True),
        ((5, 0), (5, 0), False),
        ((5, 0), (4, 0), False),
        ((5, 0), (2, 1), True),
        ((5, 2), (9, 1), False),
        ((5, 2), (9, 2), True),
    ],
)
def test_higher_version_and_then_higher_offset_wins_a_merge(
    here: tuple[int, int], there: tuple[int, int], *, newer: bool
) -> None:
    offsets = table()
    offsets.merge(kept(*here))
    before = offsets.changes
    assert offsets.merge(kept(*there)) is newer
    assert (offsets.query("G", "T", 0), offsets.version("G", "T", 0)) == (there if newer else here)
    assert (offsets.changes > before) is newer


def test_merging_is_independent_of_order() -> None:
    told = [kept(5), kept(7), kept(1, 1), kept(3, 1), kept(2, 1)]
    results: set[tuple[object, int]] = set()
    for order in itertools.permutations(told):
        offsets = table()
        for one in order:
            offsets.merge(one)
        results.add((offsets.query("G", "T", 0), offsets.version("G", "T", 0)))
    assert results == {(3, 1)}


def test_offset_removed_elsewhere_goes_with_its_version() -> None:
    offsets = table()
    offsets.merge(kept(5, 3))
    assert offsets.merge(kept(None))
    assert (offsets.query("G", "T", 0), offsets.version("G", "T", 0)) == (None, 0)
    assert not offsets.merge(kept(None))
    assert offsets.merge(kept(1, 0))


def test_changes_are_reported_with_removals_and_recreations() -> None:
    offsets = table()
    commit(offsets, 5)
    commit(offsets, 6, queue_id=1)
    rows, number, more = offsets.changed_since(0, most=10)
    assert [(row.queue_id, row.offset) for row, _ in rows] == [(0, 5), (1, 6)]
    assert not more
    commit(offsets, 5)  # nothing new
    assert offsets.changed_since(number, most=10)[0] == []
    offsets.remove_group("G")
    commit(offsets, 2)
    rows, _, _ = offsets.changed_since(number, most=10)
    assert [(row.queue_id, row.offset, removed) for row, removed in rows] == [
        (1, None, True),
        (0, 2, True),
    ]


def test_loaded_offsets_are_reported_too() -> None:
    offsets = table()
    commit(offsets, 5, 2)
    again = OffsetTable.from_dict(offsets.to_dict(), now_ms=0)
    again.versions = offsets.versions
    assert again.changed_since(0, most=10)[0] == [(kept(5, 2), False)]


def test_offset_beyond_its_queue_is_lowered_under_a_new_version() -> None:
    offsets = table()
    commit(offsets, 10, 4)
    assert not offsets.clamp("G", "T", 0, QueueOffset(10))
    assert offsets.clamp("G", "T", 0, QueueOffset(7))
    assert (offsets.query("G", "T", 0), offsets.version("G", "T", 0)) == (7, 5)
    assert not offsets.merge(kept(10, 4))
    assert not offsets.clamp("H", "T", 0, QueueOffset(0))


def test_offsets_of_new_master_win_over_offsets_set_by_a_cut() -> None:
    offsets = table()
    commit(offsets, 10, 4)
    commit(offsets, 5, 4, queue_id=1)
    offsets.cut_to(lambda _topic, _queue_id: QueueOffset(7))
    assert (offsets.query("G", "T", 0), offsets.query("G", "T", 1)) == (7, 5)
    assert offsets.merge(kept(2, 1))
    assert (offsets.query("G", "T", 0), offsets.version("G", "T", 0)) == (2, 1)


def test_offsets_of_lost_messages_are_lowered_and_those_of_lost_topics_forgotten() -> None:
    ends = {"T": QueueOffset(7), "AGAIN": QueueOffset(7), "EMPTY": QueueOffset(0)}
    offsets = table()
    for topic in ("T", "AGAIN", "EMPTY", "GONE"):
        offsets.commit("G", topic, 0, QueueOffset(10), 4, now_ms=0)
        offsets.commit("H", topic, 0, QueueOffset(0), now_ms=0)
    offsets.commit("I", "AGAIN", 0, QueueOffset(7), now_ms=0)
    offsets.keep_up_to(lambda topic, _: ends.get(topic), deleted={"AGAIN"})
    assert (offsets.query("G", "AGAIN", 0), offsets.version("G", "AGAIN", 0)) == (0, 5)
    assert (offsets.query("I", "AGAIN", 0), offsets.version("I", "AGAIN", 0)) == (7, 0)
    assert (offsets.query("G", "T", 0), offsets.version("G", "T", 0)) == (7, 5)
    assert (offsets.query("G", "EMPTY", 0), offsets.version("G", "EMPTY", 0)) == (0, 5)
    assert offsets.query("G", "GONE", 0) is None
    assert (offsets.query("H", "EMPTY", 0), offsets.version("H", "EMPTY", 0)) == (0, 0)
    assert offsets.query("H", "GONE", 0) is None


def test_offsets_of_names_that_cannot_be_are_written_back_unused() -> None:
    entries = {"T@my group": {"0": 5}, "my topic@G": {"1": 6}, "T@" + "g" * 300: {"x": "y"}}
    table = OffsetTable.from_dict({"offsetTable": entries | {"T@G": {"0": 7}}}, now_ms=1)
    assert table.groups() == {"G"}
    assert [kept.group for kept, _ in table.changed_since(0, most=9)[0]] == ["G"]
    table.remove_topic("T")
    assert parse_json(write_json(table.to_dict()))["offsetTable"] == entries


def test_all_offsets_are_returned_by_topic_and_group() -> None:
    offsets = table()
    commit(offsets, 3)
    commit(offsets, 5, queue_id=2)
    assert list(offsets.kept()) == [("T", "G", {0: 3, 2: 5})]
