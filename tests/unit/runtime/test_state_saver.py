import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ternmq_model.errors import StoreError
from ternmq_runtime.state_saver import StateSaver
from ternmq_testing.time.virtual_time import run_in_virtual_time


class Disk:
    """A file whose writes end when a test says so, and its table: one letter."""

    def __init__(self) -> None:
        self.table = self.content = "A"
        self.writes: list[tuple[str, bool]] = []
        self.error: OSError | None = None
        self._ends = asyncio.Event()
        self.saver = StateSaver[str](
            None,
            self._run,
            state=lambda: self.table,
            prepare=self._prepare,
            ended=lambda _state, reason: None if reason is None else StoreError(str(reason)),
            job_name="save",
        )
        self.saver.mark_saved()

    async def _run(self, function: Callable[[], None]) -> None:
        function()
        await self._ends.wait()

    def _prepare(self, is_awaited: bool) -> Callable[[], None]:
        writing = self.table

        def write() -> None:
            self.content = writing
            self.writes.append((writing, is_awaited))
            if self.error is not None:
                raise self.error

        return write

    async def begin(self) -> asyncio.Task[bool]:
        """Begin a step, and return it when its write is under way."""
        self._ends.clear()
        step = asyncio.ensure_future(self.saver.step())
        await asyncio.sleep(0)
        return step

    async def end(self, step: Awaitable[bool]) -> bool:
        """Let the write under way end."""
        self._ends.set()
        return await step

    def change(self, table: str) -> asyncio.Future[None] | None:
        """Change the table; return what is done when that is saved."""
        self.table = table
        return self.saver.saved()


def run(scenario: Callable[[Disk], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Disk())

    run_in_virtual_time(main())


def test_waiter_for_the_state_under_way_is_answered_by_its_write() -> None:
    async def scenario(disk: Disk) -> None:
        first = disk.change("B")
        step = await disk.begin()
        again = disk.saver.saved()
        assert first is not None
        assert again is not None
        assert not await disk.end(step)
        assert first.done()
        assert again.done()
        assert disk.writes == [("B", True)]

    run(scenario)


def test_waiter_for_the_last_saved_state_waits_while_another_is_written() -> None:
    async def scenario(disk: Disk) -> None:
        first = disk.change("B")
        step = await disk.begin()
        back = disk.change("A")
        assert back is not None, "the file is about to hold another table"
        assert await disk.end(step)
        assert first is not None
        assert first.done()
        assert not back.done()
        await disk.end(await disk.begin())
        assert back.done()
        assert disk.content == "A"

    run(scenario)


def test_failed_write_is_not_undone_by_a_change_back_in_memory() -> None:
    async def scenario(disk: Disk) -> None:
        disk.error = OSError("no disk")
        failed = disk.change("B")
        step = await disk.begin()
        meanwhile = disk.change("C")
        assert not await disk.end(step)
        for waiter in (failed, meanwhile):
            assert waiter is not None
            assert isinstance(waiter.exception(), StoreError)
        disk.error = None
        back = disk.change("A")
        assert back is not None
        assert not disk.saver.is_saved
        await disk.end(await disk.begin())
        assert back.done()
        assert disk.content == "A"
        assert disk.saver.saved() is None

    run(scenario)


def test_unawaited_write_does_not_answer_a_later_waiter() -> None:
    async def scenario(disk: Disk) -> None:
        disk.table = "B"
        step = await disk.begin()
        waiter = disk.saver.saved()
        assert waiter is not None
        assert await disk.end(step)
        assert not waiter.done()
        await disk.end(await disk.begin())
        assert waiter.done()
        assert disk.writes == [("B", False), ("B", True)]

    run(scenario)


def test_waiter_whose_second_generation_failed_can_ask_again() -> None:
    async def scenario(disk: Disk) -> None:
        disk.table = "B"
        await disk.end(await disk.begin())
        disk.error = OSError("no disk")
        failed = disk.saver.saved()
        assert failed is not None
        await disk.end(await disk.begin())
        assert isinstance(failed.exception(), StoreError)
        assert disk.saver.is_saved, "the file holds the table, once"
        disk.error = None
        again = disk.saver.saved()
        assert again is not None
        await disk.end(await disk.begin())
        assert again.done()
        assert disk.writes == [("B", False), ("B", True), ("B", True)]

    run(scenario)


def test_cancelled_waiter_leaves_the_write_to_the_others() -> None:
    async def scenario(disk: Disk) -> None:
        gone, left = disk.change("B"), disk.saver.saved()
        assert gone is not None
        assert left is not None
        step = await disk.begin()
        gone.cancel()
        await disk.end(step)
        assert left.done()
        assert disk.saver.is_saved

    run(scenario)


def test_cancelled_writer_answers_its_waiters_and_leaves_no_second_writer() -> None:
    async def scenario(disk: Disk) -> None:
        waiter = disk.change("B")
        step = await disk.begin()
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await disk.end(step)
        assert waiter is not None
        assert waiter.done()
        assert disk.saver.is_saved
        assert disk.writes == [("B", True)]

    run(scenario)


def test_two_savers_of_one_file_take_turns() -> None:
    async def scenario(disk: Disk) -> None:
        disk.table = "B"
        step = await disk.begin()
        disk.table = "C"
        other = asyncio.ensure_future(disk.saver.save())
        await asyncio.sleep(0)
        assert disk.writes == [("B", False)]
        await disk.end(step)
        assert await other is None
        assert disk.writes == [("B", False), ("C", False)]

    run(scenario)
