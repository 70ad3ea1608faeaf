"""One table of a service, with the file that stores it."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from ternmq_model.errors import StoreFailed
from ternmq_runtime.blocking_pool import Blocking
from ternmq_runtime.durable_file import replace_durably
from ternmq_runtime.state_saver import StateSaver


class JsonTable(Protocol):
    """An immutable table with a JSON form."""

    def to_json(self) -> bytes:
        """Return the content of the file."""
        ...


def replace_in_both(path: Path, data: bytes) -> None:
    """Replace both generations of a file, since a caller learns that its content is kept. Blocks.

    Raises:
        OSError: The disk refused; the previous file can still be read.
    """
    replace_durably(path, data, in_both=True)


T = TypeVar("T", bound=JsonTable)


class TableStore(Generic[T]):
    """The newest table, and the table on the disk. Owned by the loop of its service.

    Changes gather while the disk writes those before, and `job`, the one writer, takes them
    together. So a caller that goes away in the middle never leaves two writers behind.

    Args:
        path: File of the table; None = the table is in memory alone.
        blocking: Runs calls that wait for the disk.
        table: Empty table.
        kind: Plural noun for the rows of the table, for errors and the name of the job.
        undoes_refused: A change that the disk refuses is undone, in the file too, as soon as the
            disk allows it. False = it counts until the process ends.
        replace: Replaces the content of the file durably. Blocks.

    Attributes:
        job: Job that saves changes.
    """

    def __init__(
        self,
        path: Path | None,
        blocking: Blocking,
        table: T,
        *,
        kind: str,
        undoes_refused: bool = False,
        replace: Callable[[Path, bytes], None] = replace_in_both,
    ) -> None:
        self._path = path
        self._replace = replace
        self._kind = kind
        self._undoes_refused = undoes_refused
        self._blocking = blocking
        self._newest = self._saved = table
        self._saver = StateSaver(
            path,
            blocking.run,
            state=lambda: self._newest,
            prepare=self._prepare,
            ended=self._ended,
            job_name=kind,
        )
        self.job: Final = self._saver.job
        self._saver.mark_saved()

    @property
    def table(self) -> T:
        """Table on the disk."""
        return self._saved

    def _loaded(self, table: T) -> None:
        self._newest = self._saved = table
        self._saver.mark_saved()

    async def _change_to(self, table: T) -> None:
        """Replace the newest table. Durable on return.

        Raises:
            StoreFailed: The disk refused.
        """
        self._newest = table
        saved = self._saver.saved()
        if saved is not None:
            await saved

    def _prepare(self, _is_awaited: bool) -> Callable[[], None]:
        path, table = self._path, self._newest
        if path is None:
            return lambda: None
        return lambda: self._replace(path, table.to_json())

    def _ended(self, table: T, reason: OSError | None) -> StoreFailed | None:
        if reason is None:
            self._saved = table
            return None
        error = StoreFailed(f"{self._kind} are not kept: {reason}")
        if self._undoes_refused:
            self._newest = self._saved  # later changes include the refused one: they fail, too
            # Until the file is written again, a restart may find them.
            error.may_have_happened = True
        return error


def save_table(path: Path, table: JsonTable) -> None:
    """Save a table as its service does. Blocks.

    Raises:
        OSError: The disk refused; the previous file can still be read.
    """
    replace_in_both(path, table.to_json())
