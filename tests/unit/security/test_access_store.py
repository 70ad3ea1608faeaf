import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ternmq_model.errors import RefusedError, StoreError, StoreFailed, UsageError
from ternmq_runtime.service import JobRunner
from ternmq_security.access.access_table import AccessTable, first_administrator
from ternmq_security.access.table_choice import is_newer
from ternmq_security.access.user import User
from ternmq_security.access_store import FILE_NAME, AccessFile, AccessStore
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.virtual_time import run_in_virtual_time

FIRST = first_administrator(AccessTable(), User("root", (), ("CN=root",)), "test")


@contextlib.asynccontextmanager
async def store_at(path: Path | None) -> AsyncGenerator[AccessStore]:
    file = None if path is None else AccessFile(path)
    store = AccessStore(file, InlineBlocking(lambda: 1.0, is_late=lambda: True))
    await store.load(AccessTable())
    async with JobRunner(store.job):
        yield store


def test_table_survives_a_restart_and_a_late_change_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_at(tmp_path / FILE_NAME) as store:
            waiting = asyncio.ensure_future(store.changed())
            await store.put(FIRST, expected_version=0)
            await waiting
            with pytest.raises(RefusedError, match="version 1"):
                await store.put(FIRST, expected_version=0)
            with pytest.raises(UsageError, match="last user"):
                await store.put(AccessTable(version=2), expected_version=1)
        async with store_at(tmp_path / FILE_NAME) as store:
            assert store.table == FIRST

    run_in_virtual_time(main())


def test_newer_table_of_a_peer_is_taken() -> None:
    async def main() -> None:
        async with store_at(None) as store:
            two, other = FIRST.with_user(User("a")), FIRST.with_user(User("b"))
            for each in (two, FIRST, other):
                await store.take(each)
            assert store.table == (two if is_newer(two, other) else other)

    run_in_virtual_time(main())


def test_damaged_file_is_an_error_and_not_an_empty_table(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / FILE_NAME).write_bytes(b"{}")
        with pytest.raises(StoreError):
            async with store_at(tmp_path / FILE_NAME):
                pass

    run_in_virtual_time(main())


def test_table_refused_by_the_disk_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "data" / FILE_NAME
    path.parent.mkdir()
    second = FIRST.with_user(User("a"))

    async def main() -> None:
        async with store_at(path) as store:
            await store.put(FIRST, expected_version=0)
            shutil.rmtree(path.parent)
            with pytest.raises(StoreFailed, match="users are not kept"):
                await store.put(second, expected_version=1)
            assert store.table == FIRST
            path.parent.mkdir()
            await store.put(second, expected_version=1)
        async with store_at(path) as store:
            assert store.table == second

    run_in_virtual_time(main())
