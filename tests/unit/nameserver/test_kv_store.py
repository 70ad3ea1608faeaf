import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ternmq_model.errors import StateUnreadable, StoreError, StoreFailed, StoreLocked
from ternmq_nameserver.kv_store import FILE_NAME, LOCKED_NAME, KvStore
from ternmq_runtime.service import JobRunner
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.stores import open_store


@contextlib.asynccontextmanager
async def store_at(path: Path | None) -> AsyncGenerator[KvStore]:
    store = KvStore(path, InlineBlocking(lambda: 1.0))
    with contextlib.closing(store):
        await store.load()
        async with JobRunner(store.job):
            yield store


def test_acknowledged_setting_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "new" / FILE_NAME

    async def main() -> None:
        async with store_at(path) as store:
            await store.put("n", "a", "1")
            await store.put("n", "b", "2")
            await store.delete("n", "a")
            await store.delete("n", "absent")
        async with store_at(path) as store:
            assert store.table.values("n") == {"b": "2"}

    run_in_virtual_time(main())


def test_files_are_for_their_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / FILE_NAME

    async def main() -> None:
        async with store_at(path) as store:
            await store.put("n", "secret", "1")

    before = os.umask(0)
    try:
        run_in_virtual_time(main())
    finally:
        os.umask(before)
    locked = path.parent / LOCKED_NAME
    for folder in (path.parent, path.parent.parent, locked):
        assert folder.stat().st_mode & 0o777 == 0o700
    files = [*path.parent.glob("*.*"), *locked.iterdir()]
    modes = {file.name: file.stat().st_mode & 0o777 for file in files if file.is_file()}
    assert modes == dict.fromkeys((FILE_NAME, f"{FILE_NAME}.bak", "lock"), 0o600)


@pytest.mark.parametrize("is_broker_first", [False, True])
def test_directory_may_be_shared_with_a_broker(tmp_path: Path, *, is_broker_first: bool) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            if not is_broker_first:
                await stack.enter_async_context(store_at(tmp_path / FILE_NAME))
            stack.enter_context(contextlib.closing(open_store(RealFileSystem(), root=tmp_path)))
            if is_broker_first:
                await stack.enter_async_context(store_at(tmp_path / FILE_NAME))

    run_in_virtual_time(main())


def test_unreadable_file_refuses_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_at(tmp_path / FILE_NAME) as store:
            await store.put("n", "a", "1")
        (tmp_path / FILE_NAME).unlink()
        (tmp_path / FILE_NAME).mkdir()
        with pytest.raises(StateUnreadable, match=r"kvConfig\.json exists but cannot be read"):
            async with store_at(tmp_path / FILE_NAME):
                pass

    run_in_virtual_time(main())


def test_concurrent_changes_are_all_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_at(tmp_path / FILE_NAME) as store:
            await asyncio.gather(*(store.put("n", str(key), "v") for key in range(10)))
            assert len(store.table) == 10
            # The first is written alone; those that came meanwhile go together.
            assert asyncio.get_running_loop().time() < 4
        async with store_at(tmp_path / FILE_NAME) as store:
            assert len(store.table) == 10

    run_in_virtual_time(main())


def test_departed_caller_leaves_no_second_writer(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_at(tmp_path / FILE_NAME) as store:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await store.put("n", "a", "1")
            await store.put("n", "b", "2")
            assert store.table.values("n") == {"a": "1", "b": "2"}

    run_in_virtual_time(main())


def test_deletion_of_an_absent_setting_answers_while_another_is_written(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_at(tmp_path / FILE_NAME) as store, asyncio.timeout(5):
            putting = asyncio.ensure_future(store.put("n", "a", "1"))
            await asyncio.sleep(0.5)
            await store.delete("n", "absent")
            await putting

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_last_written", [False, True])
def test_deletion_back_to_an_earlier_table_is_written(
    tmp_path: Path, *, is_last_written: bool
) -> None:
    async def main() -> None:
        async with store_at(tmp_path / FILE_NAME) as store, asyncio.timeout(5):
            putting = asyncio.ensure_future(store.put("n", "a", "1"))
            await asyncio.sleep(0.5)
            if not is_last_written:
                await asyncio.gather(store.put("n", "b", "2"), store.delete("n", "b"))
            await store.delete("n", "a")
            await putting
        async with store_at(tmp_path / FILE_NAME) as store:
            assert len(store.table) == 0

    run_in_virtual_time(main())


def test_setting_whose_second_generation_failed_is_gone_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / FILE_NAME

    async def main() -> None:
        async with store_at(path) as store:
            await store.put("n", "a", "1")
            renamed = 0

            def replace(source: Path, target: Path) -> Path:
                nonlocal renamed
                renamed += 1
                if renamed > 1:
                    raise OSError("no disk")
                return original(source, target)

            original = Path.replace
            with monkeypatch.context() as patch:
                patch.setattr(Path, "replace", replace)
                with pytest.raises(StoreFailed, match="no disk") as caught:
                    await store.put("n", "b", "2")
            assert caught.value.may_have_happened
            await store.job.step()
        async with store_at(path) as store:
            assert store.table.values("n") == {"a": "1"}

    run_in_virtual_time(main())


def test_setting_refused_by_the_disk_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "gone" / FILE_NAME

    async def main() -> None:
        async with store_at(path) as store:
            await store.put("n", "a", "1")
            shutil.rmtree(path.parent)
            outcomes = await asyncio.gather(
                *(store.put("n", key, "2") for key in "ab"), return_exceptions=True
            )
            assert [type(outcome) for outcome in outcomes] == [StoreFailed, StoreFailed]
            assert store.table.values("n") == {"a": "1"}
            path.parent.mkdir()
            await store.put("n", "c", "3")
            assert store.table.values("n") == {"a": "1", "c": "3"}

    run_in_virtual_time(main())


def test_unreadable_file_is_an_error_and_not_an_empty_table(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(b"{")

    async def main() -> None:
        store = KvStore(path, InlineBlocking())
        with contextlib.closing(store), pytest.raises(StoreError, match="kvConfig"):
            await store.load()

    run_in_virtual_time(main())


def test_file_with_half_a_surrogate_pair_is_an_error_naming_it(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(rb'{"configTable": {"n": {"k": "\ud800"}}}')

    async def main() -> None:
        with pytest.raises(StoreError, match=r"kvConfig\.json: ValueError: setting 'n'/'k' is no"):
            async with store_at(path):
                pass

    run_in_virtual_time(main())


def test_directory_of_another_nameserver_is_refused_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_at(tmp_path / FILE_NAME) as store:
            with pytest.raises(StoreLocked, match=str(tmp_path)):
                async with store_at(tmp_path / FILE_NAME):
                    pass
            await store.put("n", "a", "1")
        async with store_at(tmp_path / FILE_NAME) as store:
            assert store.table.values("n") == {"a": "1"}

    run_in_virtual_time(main())


def test_settings_are_kept_in_memory_without_a_file() -> None:
    async def main() -> None:
        async with store_at(None) as store:
            await store.put("n", "a", "1")
            assert store.table.values("n") == {"a": "1"}

    run_in_virtual_time(main())
