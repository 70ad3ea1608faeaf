"""Files of the broker's tables, each replaced when its table has changed."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ternmq_broker.state.fastjson import write_json
from ternmq_model.errors import StoreError
from ternmq_model.json_checksum import add_checksum
from ternmq_remoting.environment import Blocking
from ternmq_runtime.state_saver import StateSaver
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.state_file import replace_file


class TableFile(StateSaver[Any]):
    """The file of one table. Owned by the broker's loop.

    A save with waiters writes both generations of the file, so that either can be loaded. A refused
    save is repeated later; its waiters get a StoreError.

    Args:
        path: File of the table, in an existing folder.
        files: File system; used in the blocking pool only.
        blocking: Runs calls on files.
        changes: Returns the present version of the table; the value differs after a change.
        to_dict: Returns the content of the file.
        interval_s: Pause between two checks of a table without waiters, s.
        on_saved: Called with the version of the table that was saved.
    """

    def __init__(
        self,
        path: Path,
        files: FileSystem,
        blocking: Blocking,
        *,
        changes: Callable[[], object],
        to_dict: Callable[[], Mapping[str, Any]],
        interval_s: float,
        on_saved: Callable[[Any], None] = lambda _changes: None,
    ) -> None:
        super().__init__(
            path,
            blocking.run,
            state=changes,
            prepare=self._write,
            ended=self._note,
            job_name=f"save-{path.name}",
            interval_s=interval_s,
        )
        self._file = path
        self._files = files
        self._to_dict = to_dict
        self._on_saved = on_saved

    @property
    def name(self) -> str:
        """Name of the file."""
        return self._file.name

    def _write(self, is_awaited: bool) -> Callable[[], None]:
        data = add_checksum(write_json(self._to_dict()))
        return lambda: replace_file(self._files, self._file, data, in_both=is_awaited)

    def _note(self, saved: object, reason: OSError | None) -> StoreError | None:
        if reason is None:
            self._on_saved(saved)
            return None
        refused = StoreError(f"cannot save {self._file}: {reason}")
        refused.may_have_happened = True  # the change itself counts, until a crash
        return refused


async def save_all(*files: TableFile) -> None:
    """Wait until the tables of `files` are on disk as they are when this is called.

    Raises:
        StoreError: The disk refused; the table is saved as soon as the disk allows it.
    """
    for saving in [saving for file in files if (saving := file.saved()) is not None]:
        await saving
