import errno
from pathlib import Path

import pytest

from ternmq_model.errors import StateDamaged, StateUnreadable
from ternmq_model.file_generations import newest_generation, read_state

MAIN, BEFORE = Path("/state/topics.json"), Path("/state/topics.json.bak")
REFUSALS = (errno.EACCES, errno.EPERM, errno.EIO, errno.EISDIR, errno.ELOOP, errno.ENOTDIR)


class Files:
    """What each file holds, or how reading it fails."""

    def __init__(self, main: bytes | int | None, before: bytes | int | None) -> None:
        self._files = {MAIN: main, BEFORE: before}
        self.older: list[str] = []

    def read(self, path: Path) -> bytes:
        """Return the content of a file."""
        content = self._files[path]
        if content is None:
            raise FileNotFoundError(path)
        if isinstance(content, int):
            raise OSError(content, "refused", str(path))
        return content

    def newest(self) -> int | None:
        """Return the number that is taken."""
        return newest_generation(self.read, (MAIN, BEFORE), int, on_older=self._note)

    def _note(self, path: Path, reason: str) -> None:
        assert path == BEFORE
        self.older.append(reason)


@pytest.mark.parametrize(
    ("main", "before", "taken"),
    [(b"2", b"1", 2), (None, b"1", 1), (b"x", b"1", 1), (None, None, None), (b"2", errno.EIO, 2)],
)
def test_newest_right_generation_is_taken(
    main: bytes | None, before: bytes | int | None, taken: int | None
) -> None:
    files = Files(main, before)
    assert files.newest() == taken
    assert len(files.older) == (taken == 1)


@pytest.mark.parametrize("error", REFUSALS)
@pytest.mark.parametrize("before", [None, b"1"])
def test_unreadable_file_is_neither_missing_nor_damaged(error: int, before: bytes | None) -> None:
    with pytest.raises(StateUnreadable, match=r"/state/topics\.json exists but cannot be read"):
        Files(error, before).newest()


@pytest.mark.parametrize("main", [None, b"x"])
def test_unreadable_generation_before_is_not_passed_over(main: bytes | None) -> None:
    with pytest.raises(StateUnreadable, match=r"topics\.json\.bak exists"):
        Files(main, errno.EACCES).newest()


@pytest.mark.parametrize("before", [None, b"y"])
def test_generations_that_are_all_damaged_are_an_error_naming_each(before: bytes | None) -> None:
    with pytest.raises(StateDamaged, match=r"damaged state file: /state/topics\.json: ValueError"):
        Files(b"x", before).newest()


def test_missing_state_is_none() -> None:
    assert read_state(Files(None, None).read, MAIN) is None
