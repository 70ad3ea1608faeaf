"""Which files a log must have, and what becomes of those that do not fit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from ternmq_model.errors import StoreError
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.layout import file_name
from ternmq_store.disk.mapped_file_queue import FoundFile
from ternmq_store.recovery.log_files import GAP_FILES_MAX, KnownLog, LogFilePlan, plan_log
from ternmq_store.recovery.recorded_offsets import LogFit
from ternmq_store.recovery.recovery_decisions import UndecidedState, UndecidedStore

NOTHING = KnownLog()
CLOSED_AT_350 = KnownLog(100, 0, 350, is_ours=True, was_closed=True)
KILLED_AT_150 = KnownLog(100, 0, 150, is_ours=True)
FOLDER = Path("/data/commitlog")
NO_CLAIMS: Mapping[int, int] = {}
NO_FITS: Mapping[int, LogFit] = {}
FAR = 77_777_700


class Claimed(NamedTuple):
    """What records of files say, for each of these by its base."""

    firsts: Mapping[int, int]
    """The place that its first record claims."""

    owns: Mapping[int, int]
    """A place that one of its records claims and has."""

    fits: Mapping[int, LogFit] = NO_FITS
    """What a comparison with the queues says of the files from there on."""

    def first(self, found: FoundFile) -> PhysicalOffset | None:
        """Return what is said of the file."""
        return PhysicalOffset(self.firsts[found.base]) if found.base in self.firsts else None

    def own(self, found: FoundFile, position: int = 0) -> PhysicalOffset | None:
        """Return what is said of the file."""
        at = self.owns.get(found.base, self.firsts.get(found.base))
        is_there = at is not None and position <= at - found.base < found.file_bytes
        return PhysicalOffset(at) if at is not None and is_there else None

    def fit(self, run: Sequence[FoundFile]) -> LogFit:
        """Return what is said of the files."""
        return self.fits.get(run[0].base, LogFit.NO_RECORD)


def plan(
    *files: tuple[int, int],
    known: KnownLog = NOTHING,
    firsts: Mapping[int, int] = NO_CLAIMS,
    owns: Mapping[int, int] = NO_CLAIMS,
    fits: Mapping[int, LogFit] = NO_FITS,
    default_bytes: int = 4096,
) -> LogFilePlan:
    return plan_log(
        [FoundFile(base, FOLDER / file_name(base), length) for base, length in files],
        known,
        default_bytes=default_bytes,
        recorded=Claimed(firsts, owns, fits),
    )


def bases(files: Sequence[FoundFile]) -> list[int]:
    return [file.base for file in files]


def test_log_without_files_gets_the_configured_length() -> None:
    assert plan().file_bytes == 4096
    assert plan((0, 0)).file_bytes == 4096
    assert bases(plan((0, 0)).removed) == [0]


def test_length_is_read_off_the_files() -> None:
    assert plan((0, 100)).file_bytes == 100
    assert plan((200, 100), (300, 100)).file_bytes == 100


def test_empty_file_at_the_end_is_removed() -> None:
    found = plan((0, 100), (100, 100), (200, 0))
    assert bases(found.row) == [0, 100]
    assert bases(found.removed) == [200]


def test_last_file_may_have_lost_its_end() -> None:
    found = plan((0, 100), (100, 40))
    assert (found.file_bytes, bases(found.short)) == (100, [100])
    assert list(found.damage(140)) == []
    assert [(one.start, one.end) for one in found.damage(150)] == [(140, 150)]
    assert plan((0, 40), known=KnownLog(100)).short
    assert not plan((0, 40)).short


def test_noted_length_of_another_log_does_not_count() -> None:
    assert plan((0, 100), (100, 100), known=KnownLog(4096)).file_bytes == 100
    assert plan((0, 100), known=KnownLog(40)).file_bytes == 100


@pytest.mark.parametrize("known", [NOTHING, CLOSED_AT_350])
@pytest.mark.parametrize("at", [0, 100, 200])
@pytest.mark.parametrize("length", [101, 199, 250])
def test_bytes_behind_a_file_are_surplus_in_any_file(known: KnownLog, at: int, length: int) -> None:
    found = plan(*((base, length if base == at else 100) for base in (0, 100, 200)), known=known)
    assert (found.file_bytes, bases(found.long)) == (100, [at])
    assert bases(found.row) == [0, 100, 200]
    assert not found.strays


def test_noted_length_decides_for_single_file() -> None:
    found = plan((0, 101), known=CLOSED_AT_350)
    assert (found.file_bytes, bases(found.long)) == (100, [0])


@pytest.mark.parametrize("known", [NOTHING, CLOSED_AT_350])
@pytest.mark.parametrize(("at", "length"), [(0, 0), (0, 60), (100, 0), (100, 1), (100, 99)])
def test_missing_bytes_before_the_end_are_damage(known: KnownLog, at: int, length: int) -> None:
    found = plan(*((base, length if base == at else 100) for base in (0, 100, 200)), known=known)
    assert found.file_bytes == 100
    assert [(one.start, one.end) for one in found.damage(0)] == [(at + length, at + 100)]


@pytest.mark.parametrize("known", [CLOSED_AT_350, KILLED_AT_150])
def test_missing_file_that_was_on_the_disk_is_damage(known: KnownLog) -> None:
    found = plan((0, 100), (200, 100), (300, 100), known=known)
    assert bases(found.row) == [0, 100, 200, 300]
    assert [(one.start, one.end) for one in found.damage(0)] == [(100, 200)]


def test_file_that_a_queue_confirms_is_of_the_log_however_little_was_noted() -> None:
    fits = {800: LogFit.CONFIRMED}
    found = plan((0, 100), (800, 100), (900, 100), known=KILLED_AT_150, fits=fits)
    assert bases(found.row) == [*range(0, 1000, 100)]
    assert [(one.start, one.end) for one in found.damage(0)] == [
        (base, base + 100) for base in range(100, 800, 100)
    ]
    found = plan((0, 100), (800, 100), (900, 100), known=KILLED_AT_150)
    assert (bases(found.row), len(found.strays)) == ([0], 2)


def test_file_too_far_behind_the_log_is_of_another_one() -> None:
    far = 100 * (GAP_FILES_MAX + 2)
    fits = {far: LogFit.UNCONFIRMED}
    found = plan((0, 100), (far, 100), known=KILLED_AT_150, owns={far: far}, fits=fits)
    assert [stray.file.base for stray in found.strays] == [far]
    found = plan((0, 100), (far, 100), known=KILLED_AT_150, fits={far: LogFit.CONFIRMED})
    assert not found.strays


def test_unconfirmed_file_is_of_a_killed_log_behind_a_short_gap_alone() -> None:
    known = KILLED_AT_150._replace(flushed=50)
    found = plan((0, 100), (300, 100), known=known, fits={300: LogFit.UNCONFIRMED})
    assert bases(found.row) == [0, 100, 200, 300]
    for fit in (LogFit.UNCONFIRMED, LogFit.NO_RECORD):
        found = plan((0, 100), (300, 100), known=known._replace(was_closed=True), fits={300: fit})
        assert bases(found.row) == [0]
    with pytest.raises(UndecidedStore, match="fill-gaps") as caught:
        plan((0, 100), (400, 100), known=known, fits={400: LogFit.UNCONFIRMED})
    assert caught.value.choice.state is UndecidedState.MISSING_FILE


def test_bytes_that_no_file_has_are_told() -> None:
    found = plan(
        (0, 100),
        (200, 40),
        (300, 100),
        (400, 60),
        known=KILLED_AT_150,
        fits={300: LogFit.CONFIRMED},
    )
    lacking = [at for at in (0, 99, 100, 199, 239, 240, 399, 400, 459, 460, 500) if found.lacks(at)]
    assert lacking == [100, 199, 240, 460, 500]
    assert plan().lacks(0)


def test_files_outside_the_noted_log_are_strays() -> None:
    found = plan((0, 100), (100, 100), (200, 100), (300, 100), (900, 100), known=CLOSED_AT_350)
    assert bases(found.row) == [0, 100, 200, 300]
    assert [stray.file.base for stray in found.strays] == [900]
    known = CLOSED_AT_350._replace(start=200)
    found = plan((0, 100), (200, 100), (300, 100), known=known)
    assert bases(found.row) == [200, 300]
    assert [stray.file.base for stray in found.strays] == [0]


def test_file_at_an_odd_place_is_a_stray() -> None:
    found = plan((0, 100), (50, 100), (100, 100))
    assert bases(found.row) == [0, 100]
    assert [stray.file.base for stray in found.strays] == [50]


def test_foreign_file_leaves_a_damaged_range() -> None:
    found = plan(
        (0, 100), (100, 100), (200, 100), (300, 100), known=CLOSED_AT_350, firsts={100: FAR}
    )
    assert [stray.file.base for stray in found.strays] == [100]
    assert [(one.start, one.end) for one in found.damage(0)] == [(100, 200)]


@pytest.mark.parametrize(
    ("files", "firsts", "words"),
    [
        (
            ((0, 100), (200, 100)),
            {},
            (
                f"{file_name(100)} is missing",
                "--fill-gaps",
                f"--set-aside {file_name(0)}`",
                f"--set-aside {file_name(200)}`",
            ),
        ),
        (((0, 100), (400, 200)), {}, ("--file-bytes 100`", "--file-bytes 200`")),
        (((50, 100), (150, 100)), {}, ("two logs", f"{file_name(50)} --set-aside")),
        (((0, 100), (50, 100)), {}, ("two logs", "--set-aside")),
        (
            ((0, 100), (100, 100)),
            {100: FAR},
            ("two logs", f"{file_name(0)}`", f"{file_name(100)}`"),
        ),
    ],
)
def test_unclear_log_is_refused_with_a_command_for_each_way(
    files: tuple[tuple[int, int], ...], firsts: Mapping[int, int], words: tuple[str, ...]
) -> None:
    with pytest.raises(StoreError) as caught:
        plan(*files, firsts=firsts)
    told = str(caught.value)
    assert "`ternmq store repair /data --" in told
    for each in words:
        assert each in told
