import asyncio
from pathlib import Path
from typing import Any

import pytest

from ternmq_broker.state.table_file import TableFile
from ternmq_broker.state.table_formats import parse_table
from ternmq_model.errors import StoreError
from ternmq_model.file_generations import previous_path
from ternmq_model.json_checksum import verify_checksum
from ternmq_store.disk.state_file import read_whole
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time

PATH = Path("/state/table.json")


def files_with_folder() -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make_folder(PATH.parent)
    return files


def content(files: MemoryFileSystem) -> dict[str, Any]:
    """Return what the file holds, without its checksum."""
    data = read_whole(files, PATH)
    assert verify_checksum(data)
    return parse_table(data)


class Table:
    """A counter with a file."""

    def __init__(self, files: MemoryFileSystem, delay_s: float = 0.0) -> None:
        self.value = 0
        self.file = TableFile(
            PATH,
            files,
            InlineBlocking(lambda: delay_s),
            changes=lambda: self.value,
            to_dict=lambda: {"value": self.value},
            interval_s=1.0,
        )
        self.file.mark_saved()


def test_waiters_are_released_when_the_table_is_saved() -> None:
    async def main() -> None:
        files = files_with_folder()
        table = Table(files)
        assert table.file.saved() is None
        table.value = 1
        first, second = table.file.saved(), table.file.saved()
        assert first is not None
        assert second is not None
        assert table.file.job.woken.is_set()
        await table.file.step()
        await first
        await second
        assert table.file.is_saved
        assert content(files) == {"value": 1}

    run_in_virtual_time(main())


def test_table_that_is_waited_for_is_in_both_generations() -> None:
    async def main() -> None:
        files = files_with_folder()
        table = Table(files)
        for table.value in (1, 2):
            waiting = table.file.saved()
            assert waiting is not None
            await table.file.step()
            await waiting
            assert read_whole(files, previous_path(PATH)) == read_whole(files, PATH)
        table.value = 3
        await table.file.step()
        assert parse_table(read_whole(files, previous_path(PATH))) == {"value": 2}

    run_in_virtual_time(main())


def test_change_during_a_save_is_saved_by_the_next() -> None:
    async def main() -> None:
        files = files_with_folder()
        table = Table(files, delay_s=1.0)
        table.value = 1
        step = asyncio.gather(table.file.step(), asyncio.sleep(0))
        await asyncio.sleep(0.5)
        table.value = 2
        waiting = table.file.saved()
        assert waiting is not None
        has_more, _ = await step
        assert has_more
        assert not table.file.is_saved
        await table.file.step()
        await waiting
        assert content(files) == {"value": 2}

    run_in_virtual_time(main())


def test_table_back_at_its_last_saved_state_is_saved_over_the_one_under_way() -> None:
    async def main() -> None:
        files = files_with_folder()
        table = Table(files, delay_s=1.0)
        table.value = 1
        step = asyncio.ensure_future(table.file.step())
        await asyncio.sleep(0.5)
        table.value = 0
        waiting = table.file.saved()
        assert waiting is not None
        assert await step
        await table.file.step()
        await waiting
        assert content(files) == {"value": 0}

    run_in_virtual_time(main())


def test_failing_saves_are_logged_once_and_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        files = files_with_folder()
        table = Table(files)
        table.value = 1
        files.sync_error = OSError("no disk")
        for _ in range(2):
            waiting = table.file.saved()
            assert waiting is not None
            await table.file.step()
            with pytest.raises(StoreError, match="no disk"):
                await waiting
        files.sync_error = None
        await table.file.step()
        assert table.file.is_saved

    run_in_virtual_time(main())
    assert caplog.text.count("table not saved") == 1
