"""Which files a log must have, and what can be put right."""

from pathlib import Path

import pytest

from ternmq_model.errors import StoreError
from ternmq_store.disk.layout import file_name
from ternmq_store.disk.mapped_file_queue import FoundFile
from ternmq_store.recovery.log_files import LogPlan, plan_log


def plan(*files: tuple[int, int], noted_bytes: int = 0) -> LogPlan:
    found = [FoundFile(base, Path(file_name(base)), length) for base, length in files]
    return plan_log(found, noted_bytes=noted_bytes, default_bytes=4096)


def test_log_without_files_gets_the_configured_length() -> None:
    assert plan().file_bytes == 4096
    assert plan((0, 0)).file_bytes == 4096
    assert [file.base for file in plan((0, 0)).removed] == [0]


def test_length_is_read_off_the_files() -> None:
    assert plan((0, 100)).file_bytes == 100
    assert plan((200, 100), (300, 100)).file_bytes == 100


def test_empty_file_at_the_end_is_removed() -> None:
    found = plan((0, 100), (100, 100), (200, 0))
    assert [file.base for file in found.kept] == [0, 100]
    assert [file.base for file in found.removed] == [200]


def test_last_file_may_have_lost_its_end() -> None:
    found = plan((0, 100), (100, 40))
    assert (found.file_bytes, found.lengthened) == (100, found.kept[1])
    assert plan((0, 40), noted_bytes=100).lengthened is not None
    assert plan((0, 40)).lengthened is None


def test_noted_length_of_another_log_does_not_count() -> None:
    assert plan((0, 100), (100, 100), noted_bytes=4096).file_bytes == 100
    assert plan((0, 100), noted_bytes=40).file_bytes == 100


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (((0, 100), (200, 100)), f"{file_name(100)} is missing"),
        (((0, 100), (100, 0), (200, 100)), f"{file_name(100)} is empty"),
        (((0, 0), (100, 100)), f"{file_name(0)} is empty"),
        (((0, 100), (100, 60), (200, 100)), f"{file_name(100)} has 60 bytes, others have 100"),
        (((0, 60), (100, 100), (200, 100)), f"{file_name(0)} has 60 bytes, others have 100"),
        (((0, 100), (100, 100), (200, 160)), f"{file_name(200)} has 160 bytes"),
        (((50, 100), (150, 100)), f"{file_name(50)} does not follow"),
    ],
)
def test_inconsistent_log_files_are_refused_by_name(
    files: tuple[tuple[int, int], ...], reason: str
) -> None:
    with pytest.raises(StoreError, match=reason):
        plan(*files)
