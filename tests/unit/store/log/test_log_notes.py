"""The side file and the token in `abort`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_store.disk.layout import abort_path, notes_path
from ternmq_store.log.checksum_ranges import ChecksumRange
from ternmq_store.log.clock_moves import ClockDoubt, ClockMove, ClockNotes, TimerMove
from ternmq_store.log.log_notes import (
    AbortFile,
    LastUse,
    LogNotes,
    QueueNote,
    decode_abort,
    decode_notes,
    encode_abort,
    encode_notes,
    last_use,
    load_abort,
    load_notes,
    save_abort,
    save_notes,
)
from ternmq_store.log.quarantine import DamagedRange
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.stores import ROOT

OFFSETS = st.integers(0, 1 << 62).map(PhysicalOffset)
WORDS = st.lists(st.text("abcxyz0159=é", min_size=1), max_size=4).map(" ".join)
NOTES = st.builds(
    LogNotes,
    st.text("0123456789abcdef-"),
    st.booleans(),
    OFFSETS,
    OFFSETS,
    OFFSETS,
    st.lists(st.builds(ChecksumRange, OFFSETS, st.none() | OFFSETS)).map(tuple),
    st.lists(st.builds(DamagedRange, OFFSETS, OFFSETS, WORDS)).map(tuple),
    OFFSETS,
    st.lists(
        st.builds(
            QueueNote,
            st.sampled_from(("A", "%RETRY%g", "T-1")),
            st.integers(0, 9),
            OFFSETS.map(QueueOffset),
            OFFSETS.map(QueueOffset),
        )
    ).map(tuple),
    st.lists(WORDS.filter(bool)).map(tuple),
    st.none() | OFFSETS,
    st.lists(st.sampled_from(("topics.json", "timercheck"))).map(tuple),
    st.builds(
        ClockNotes,
        st.dictionaries(OFFSETS, st.integers(-(1 << 50), 1 << 50)).map(
            lambda moves: tuple(ClockMove(*move) for move in sorted(moves.items()))
        ),
        st.none() | st.builds(ClockDoubt, OFFSETS, st.integers(-(1 << 50), 1 << 50)),
        st.integers(0, 1 << 50),
        st.lists(
            st.builds(
                TimerMove, OFFSETS.map(QueueOffset), st.none() | st.integers(-(1 << 50), 1 << 50)
            )
        ).map(tuple),
    ),
)
OPEN = LogNotes("token", is_open=True, flushed=PhysicalOffset(7))


@given(notes=NOTES)
def test_notes_survive_the_round_trip(notes: LogNotes) -> None:
    assert decode_notes(encode_notes(notes)) == notes


def test_notes_with_any_altered_or_missing_byte_do_not_count() -> None:
    data = encode_notes(OPEN)
    for at in range(len(data) - 1):  # without its line feed it says the same
        with pytest.raises((ValueError, LookupError)):
            decode_notes(data[:at])
        altered = bytearray(data)
        altered[at] ^= 0x10
        with pytest.raises((ValueError, LookupError)):
            decode_notes(bytes(altered))


def test_queue_name_leading_elsewhere_is_refused() -> None:
    notes = LogNotes(queues=(QueueNote("../../etc", 0, QueueOffset(0), QueueOffset(0)),))
    with pytest.raises(ValueError, match="etc"):
        decode_notes(encode_notes(notes))


@pytest.mark.parametrize(
    ("notes", "abort", "expected"),
    [
        (LogNotes(), None, LastUse.CLEAN),
        (LogNotes("token"), None, LastUse.CLEAN),
        (OPEN, None, LastUse.FOREIGN_CLEAN),
        (OPEN, AbortFile(1, "token"), LastUse.CRASHED),
        (OPEN, AbortFile(1, ""), LastUse.FOREIGN_CRASHED),
        (OPEN, AbortFile(1, "other"), LastUse.FOREIGN_CRASHED),
        (LogNotes("token"), AbortFile(1, "token"), LastUse.FOREIGN_CRASHED),
        (LogNotes(), AbortFile(1, ""), LastUse.FOREIGN_CRASHED),
        (LogNotes(is_open=True), AbortFile(1, ""), LastUse.FOREIGN_CRASHED),
    ],
)
def test_notes_of_an_open_session_count_only_with_its_token(
    notes: LogNotes, abort: AbortFile | None, expected: LastUse
) -> None:
    assert last_use(notes, abort) is expected
    assert expected.is_clean == (abort is None)


def test_abort_file_of_rocketmq_has_a_process_and_no_token() -> None:
    assert decode_abort(encode_abort(AbortFile(12, "token"))) == AbortFile(12, "token")
    assert decode_abort(b"4711") == AbortFile(4711, "")
    assert decode_abort(b"") == AbortFile(None, "")
    assert decode_abort(b"\xff\n\n") == AbortFile(None, "")


def test_side_files_are_read_as_they_were_saved() -> None:
    files = MemoryFileSystem()
    files.make_folder(ROOT)
    reasons: list[str] = []
    assert load_notes(files, ROOT, reasons.append) == LogNotes()
    assert load_abort(files, ROOT) is None
    save_notes(files, ROOT, OPEN)
    save_abort(files, ROOT, AbortFile(1, "token"))
    assert load_notes(files, ROOT, reasons.append) == OPEN
    assert load_abort(files, ROOT) == AbortFile(1, "token")
    assert files.files(ROOT) == ["abort", "ternmq.store"]
    assert not reasons


def test_damaged_notes_give_way_to_the_previous_generation_or_none() -> None:
    files = MemoryFileSystem()
    files.make_folder(ROOT)
    reasons: list[str] = []
    save_notes(files, ROOT, LogNotes("first"))
    save_notes(files, ROOT, LogNotes("second"))
    files.nodes[notes_path(ROOT)].data[3] ^= 1
    assert load_notes(files, ROOT, reasons.append) == LogNotes("first")
    assert not reasons
    for path in files.nodes:
        files.nodes[path].data = files.nodes[path].data[:5].copy()
    assert load_notes(files, ROOT, reasons.append) == LogNotes()
    assert "ternmq.store" in reasons[0]


def test_oversized_abort_file_is_ignored() -> None:
    files = MemoryFileSystem()
    files.make_folder(ROOT)
    files.open(abort_path(ROOT), create=True).write(0, bytes(5000))
    assert load_abort(files, ROOT) == AbortFile(None, "")
