import random
from pathlib import Path

import pytest

from ternmq_model.errors import StoreError
from ternmq_model.file_generations import previous_path
from ternmq_store.disk.state_file import read_generations, read_whole, replace_file
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem, PowerLost

PATH = Path("/state/offset")


def files_with_folder() -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make_folder(PATH.parent)
    return files


def test_newest_generation_is_read() -> None:
    files = files_with_folder()
    assert read_generations(files, PATH, int) is None
    replace_file(files, PATH, b"1")
    replace_file(files, PATH, b"2")
    assert read_generations(files, PATH, int) == 2


@pytest.mark.parametrize("damage", [b"", b"x", b"\xff"])
def test_damaged_file_gives_way_to_the_previous_generation(damage: bytes) -> None:
    files = files_with_folder()
    replace_file(files, PATH, b"1")
    replace_file(files, PATH, b"2")
    file = files.open(PATH)
    file.resize(0)
    file.write(0, damage)
    assert read_generations(files, PATH, int) == 1


def test_previous_generation_is_readable_between_the_renames() -> None:
    files = files_with_folder()
    replace_file(files, PATH, b"1")
    files.rename(PATH, previous_path(PATH))
    assert read_generations(files, PATH, int) == 1


def test_file_without_previous_generation_stands_alone() -> None:
    files = files_with_folder()
    replace_file(files, PATH, b"1", keep_previous=False)
    replace_file(files, PATH, b"2", keep_previous=False)
    assert files.files(PATH.parent) == ["offset"]
    assert read_whole(files, PATH) == b"2"


def test_malformed_state_file_is_not_taken_for_empty() -> None:
    files = files_with_folder()
    files.open(PATH, create=True).write(0, b"{")
    with pytest.raises(StoreError, match="offset"):
        read_generations(files, PATH, int)


def test_oversized_state_file_is_not_read() -> None:
    files = files_with_folder()
    replace_file(files, PATH, b"12345")
    with pytest.raises(ValueError, match="too many"):
        read_whole(files, PATH, bytes_max=4)


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_at_any_moment_leaves_one_generation(seed: int) -> None:
    chance = random.Random(seed)
    files = PowerLossFileSystem()
    files.make_folder(PATH.parent)
    replace_file(files, PATH, b"1")
    replace_file(files, PATH, b"2")
    files.happenings_left = chance.randrange(9)
    try:
        replace_file(files, PATH, b"3")
        is_done = True
    except PowerLost:
        is_done = False
    found = read_generations(files.lose_power(chance), PATH, int)
    assert found == 3 if is_done else found in {2, 3}


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_at_any_moment_leaves_the_generation_before_a_damaged_file(seed: int) -> None:
    chance = random.Random(seed)
    files = PowerLossFileSystem()
    files.make_folder(PATH.parent)
    replace_file(files, PATH, b"2", in_both=True)
    replace_file(files, PATH, b"x", keep_previous=False)
    files.happenings_left = chance.randrange(16)
    try:
        replace_file(files, PATH, b"3", in_both=True)
        is_done = True
    except PowerLost:
        is_done = False
    found = read_generations(files.lose_power(chance), PATH, int)
    assert found == 3 if is_done else found in {2, 3}
