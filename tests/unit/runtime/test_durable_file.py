import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ternmq_model.errors import StoreError
from ternmq_runtime.durable_file import (
    make_directory_durably,
    read_newest,
    replace_durably,
    sync_directory,
)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_written_file_is_read_and_its_previous_generation_kept(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    for generation in (b"1", b"2", b"3"):
        replace_durably(path, generation)
        assert read_newest(path, int) == int(generation)
    assert names(tmp_path) == ["topics.json", "topics.json.bak"]
    assert (tmp_path / "topics.json.bak").read_bytes() == b"2"


def test_file_that_is_written_in_both_generations_can_lose_either(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    replace_durably(path, b"1")
    replace_durably(path, b"2", in_both=True)
    path.write_bytes(b"x")
    assert read_newest(path, int) == 2
    assert path.read_bytes() == b"2"


def test_missing_file_reads_as_none(tmp_path: Path) -> None:
    assert read_newest(tmp_path / "topics.json", int) is None


@pytest.mark.parametrize("torn", [b"", b"\x00\x00", b'{"topics": ', b'{"other": 1}'])
def test_torn_file_falls_back_to_the_previous_generation(
    tmp_path: Path, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "topics.json"
    replace_durably(path, b'{"topics": 1}')
    replace_durably(path, b'{"topics": 2}')
    path.write_bytes(torn)

    assert read_newest(path, lambda data: json.loads(data)["topics"]) == 1
    assert "topics.json.bak" in caplog.text


def test_crash_between_the_renames_leaves_the_previous_generation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "topics.json"
    replace_durably(path, b"1")
    path.rename(tmp_path / "topics.json.bak")
    assert read_newest(path, int) == 1
    assert "not there" in caplog.text


@pytest.mark.parametrize("in_both", [False, True])
@pytest.mark.parametrize("step", range(14))
def test_crash_at_any_step_leaves_the_generation_before_a_damaged_file(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_both: bool
) -> None:
    class Crash(BaseException):
        pass

    left = step

    def dying(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Crash
            left -= 1
            return function(*args, **kwargs)

        return call

    path = tmp_path / "topics.json"
    replace_durably(path, b"1", in_both=True)
    path.write_bytes(b"x")
    with monkeypatch.context() as patch, suppress(Crash):
        patch.setattr(os, "fsync", dying(os.fsync))
        patch.setattr(Path, "replace", dying(Path.replace))
        assert read_newest(path, int) == 1
        replace_durably(path, b"2", in_both=in_both)
    assert read_newest(path, int) in {1, 2}
    path.unlink()
    assert read_newest(path, int) in {1, 2}


def test_damaged_file_is_set_aside_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    replace_durably(path, b"1", in_both=True)
    path.write_bytes(b"x")
    assert read_newest(path, int) == 1
    assert names(tmp_path) == ["topics.json", "topics.json.bad", "topics.json.bak"]
    (tmp_path / "topics.json.bak").unlink()
    assert read_newest(path, int) == 1


def test_generation_before_is_taken_from_a_disk_that_takes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "topics.json"
    replace_durably(path, b"1", in_both=True)
    path.write_bytes(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        assert read_newest(path, int) == 1
    replace_durably(path, b"2")
    path.write_bytes(b"x")
    assert read_newest(path, int) == 1


def test_two_unreadable_generations_are_an_error_naming_both(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    replace_durably(path, b"x")
    replace_durably(path, b"y")
    with pytest.raises(
        StoreError, match=r"topics\.json: ValueError.*topics\.json\.bak: ValueError"
    ):
        read_newest(path, int)


def test_unreadable_first_file_is_an_error_and_not_absent(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    replace_durably(path, b"x")
    with pytest.raises(StoreError, match=r"topics\.json"):
        read_newest(path, int)


def test_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "topics.json"
    replace_durably(path, b"1")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        replace_durably(path, b"2")
    assert names(tmp_path) == ["topics.json"]
    assert read_newest(path, int) == 1


def test_bytes_are_synced_before_the_rename_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topics.json"
    listings: list[list[str]] = []
    real_fsync = os.fsync

    def note(descriptor: int) -> None:
        listings.append(names(tmp_path))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    replace_durably(path, b"1")
    assert listings == [["topics.json.tmp"], ["topics.json"]]


def test_syncing_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_directory(tmp_path / "nowhere")


def test_each_created_directory_is_synced_into_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("ternmq_runtime.durable_file.sync_directory", synced.append)
    make_directory_durably(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert synced == [tmp_path, tmp_path / "a"]
    make_directory_durably(tmp_path / "a" / "b")
    assert len(synced) == 2, "what was there is left as it is"


def test_directory_is_not_created_where_a_file_lies(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        make_directory_durably(tmp_path / "file" / "b")
