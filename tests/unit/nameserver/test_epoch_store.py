import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from ternmq_model.errors import StoreError, StoreFailed
from ternmq_nameserver.epoch_store import FILE_NAME, EpochStore, load_epochs
from ternmq_nameserver.epoch_table import EpochTable, epoch_table_from_json
from ternmq_runtime.durable_file import read_newest
from ternmq_runtime.service import JobRunner
from ternmq_runtime.table_store import save_table
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.virtual_time import run_in_virtual_time


@contextlib.asynccontextmanager
async def store_at(path: Path | None) -> AsyncGenerator[EpochStore]:
    blocking = InlineBlocking(lambda: 1.0, is_late=lambda: True)
    store = EpochStore(path, blocking)
    await store.load()
    async with JobRunner(store.job):
        yield store


def test_accepted_epoch_survives_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_at(tmp_path / FILE_NAME) as store:
            await store.accept("c", "a", 1000)
            await asyncio.gather(*(store.accept("c", f"b{each}", each) for each in range(1, 9)))
            await store.accept("c", "a", 5)
        async with store_at(tmp_path / FILE_NAME) as store:
            assert store.highest("c", "a") == 1000
            assert [store.highest("c", f"b{each}") for each in range(1, 9)] == [*range(1, 9)]
            assert store.highest("c", "other") == 0

    run_in_virtual_time(main())


def test_epoch_counts_from_the_moment_it_is_requested(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_at(tmp_path / FILE_NAME) as store:
            raising = asyncio.ensure_future(store.accept("c", "a", 2))
            await asyncio.sleep(0.5)
            assert not raising.done()
            assert store.highest("c", "a") == 2
            await raising

    run_in_virtual_time(main())


def test_accepting_the_epoch_again_waits_until_it_is_on_disk(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / FILE_NAME
        async with store_at(path) as store:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await store.accept("c", "a", 2)
            await store.accept("c", "a", 2)
            assert epoch_table_from_json(path.read_bytes()).get("c", "a") == 2
            before_s = asyncio.get_running_loop().time()
            await store.accept("c", "a", 2)
            assert asyncio.get_running_loop().time() == before_s

    run_in_virtual_time(main())


def test_epoch_refused_by_the_disk_counts_without_acknowledgement(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "gone" / FILE_NAME
        async with store_at(path) as store:
            with pytest.raises(StoreFailed, match="epochs are not kept"):
                await store.accept("c", "a", 2)
            assert store.highest("c", "a") == 2
            path.parent.mkdir()
            await store.accept("c", "a", 2)
            assert epoch_table_from_json(path.read_bytes()).get("c", "a") == 2

    run_in_virtual_time(main())


@pytest.mark.parametrize("step", range(4))
def test_crash_at_any_step_leaves_at_least_the_acknowledged_epochs(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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

    async def main() -> None:
        nonlocal left
        path = tmp_path / FILE_NAME
        async with store_at(path) as store:
            await store.accept("c", "a", 1)
        left = step
        store = EpochStore(path, InlineBlocking())
        await store.load()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", dying(os.fsync))
            patch.setattr(Path, "replace", dying(Path.replace))
            raising = asyncio.ensure_future(store.accept("c", "a", 2))
            await asyncio.sleep(0)
            with pytest.raises(Crash):
                await store.job.step()
            assert not raising.done()
            raising.cancel()
        found = read_newest(path, epoch_table_from_json) or EpochTable()
        assert found.get("c", "a") in (1, 2)

    run_in_virtual_time(main())


def test_flipped_digit_of_an_epoch_gives_way_to_the_other_generation(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME

    async def main() -> None:
        async with store_at(path) as store:
            await store.accept("c", "a", 1_002_000)
        path.write_bytes(path.read_bytes().replace(b"1002000", b"1003000"))
        async with store_at(path) as store:
            assert store.highest("c", "a") == 1_002_000

    run_in_virtual_time(main())


def test_repaired_epochs_are_what_the_next_start_finds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / FILE_NAME

    async def main() -> None:
        async with store_at(path) as store:
            await store.accept("c", "a", 1 << 62)
            await store.accept("c", "b", 5)
        async with store_at(path):
            assert f"ternmq broker repair-epoch a --data {tmp_path}" in caplog.text
        save_table(path, load_epochs(path).repaired("c", "a", 2))
        assert path.read_bytes() == path.with_name(f"{FILE_NAME}.bak").read_bytes()
        async with store_at(path) as store:
            assert [store.highest("c", name) for name in "ab"] == [2, 5]

    run_in_virtual_time(main())


def test_unreadable_file_is_an_error_and_not_an_empty_table(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(b"{")

    async def main() -> None:
        with pytest.raises(StoreError, match="brokerEpochs"):
            async with store_at(path):
                pass

    run_in_virtual_time(main())


def test_epochs_are_kept_in_memory_without_a_file() -> None:
    async def main() -> None:
        async with store_at(None) as store:
            await store.accept("c", "a", 2)
            assert store.highest("c", "a") == 2

    run_in_virtual_time(main())


def test_lost_epochs_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "kvConfig.json").write_text("{}", encoding="utf-8")

    async def main() -> None:
        async with store_at(tmp_path / FILE_NAME):
            pass

    run_in_virtual_time(main())
    assert "no epochs found" in caplog.text
