"""Consume queues of a store, by topic and queue id."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ternmq_model.errors import IllegalName
from ternmq_model.names import check_topic
from ternmq_model.offsets import UNIT_BYTES
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import (
    consume_queue_ext_folder,
    consume_queue_folder,
    queue_ext_folder,
    queue_folder,
)
from ternmq_store.disk.mapped_file_queue import FoundFile, UnsyncedNames, find_files
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.consume_queue_ext import CONSUME_QUEUE_EXT_FILE_BYTES, ConsumeQueueExt

logger = logging.getLogger(__name__)


class ConsumeQueues:
    """Consume queues of a store.

    Owned by `MessageStore`, on the store's thread.
    """

    def __init__(
        self,
        files: FileSystem,
        root: Path,
        file_bytes: int,
        *,
        ext_file_bytes: int = CONSUME_QUEUE_EXT_FILE_BYTES,
        ext_unit_bytes: int = 0,
    ) -> None:
        """Use `load`.

        Args:
            files: The file system.
            root: The store's directory.
            file_bytes: Length of files of new queues.
            ext_file_bytes: Length of files of new extensions.
            ext_unit_bytes: Bytes to reserve for each extension unit; 0 = none is added.
        """
        self._files = files
        self._root = root
        self._file_bytes = file_bytes
        self._ext_file_bytes = ext_file_bytes
        self._ext_unit_bytes = ext_unit_bytes
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue that has messages or files; None if there is none."""
        return self._queues.get((topic, queue_id))

    def of(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue, which creates its files on demand. The topic's name must be valid."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._make(topic, queue_id)
            if queue.ext is not None:
                queue.ext.cut_behind(None)
        return queue

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = ConsumeQueue(self._files, self._root, topic, queue_id, self._file_bytes)
        self._queues[topic, queue_id] = queue
        self._add_ext(queue)
        return queue

    def _add_ext(self, queue: ConsumeQueue) -> None:
        folder = queue_ext_folder(self._root, queue.topic, queue.queue_id)
        found = find_files(self._files, folder) if self._files.exists(folder) else ()
        queue.ext_unit_bytes = self._ext_unit_bytes
        if not found and not self._ext_unit_bytes:
            return
        file_bytes = found[0].file_bytes if found else self._ext_file_bytes
        good = _row(found, file_bytes) if file_bytes else ()
        for file in found[len(good) :]:
            logger.warning("consume queue ext file does not fit file=%s", file.path)
            self._files.remove(file.path)
        file_bytes = file_bytes if good else self._ext_file_bytes
        ext = ConsumeQueueExt(self._files, self._root, queue.topic, queue.queue_id, file_bytes)
        ext.open_files(good)
        queue.ext = ext

    def load(self, *, was_clean: bool) -> bool:
        """Map the files of every queue, and remove files that do not fit into their queue.

        Args:
            was_clean: True after a clean stop.

        Returns:
            True if the removed files had no units.
        """
        found = list(self._find())
        lengths = [file.file_bytes for _, _, files in found for file in files]
        self._file_bytes = unit_file_bytes(lengths) or self._file_bytes
        is_complete = True
        for topic, queue_id, files in found:
            good = _row(files, self._file_bytes)
            for file in files[len(good) :]:
                logger.warning("consume queue file does not fit file=%s", file.path)
                self._files.remove(file.path)
            if len(good) < len(files):
                self._files.sync_folder(queue_folder(self._root, topic, queue_id))
                # A crash may leave a new last file, still without its length.
                was_made = not was_clean and files[-1].file_bytes == 0
                is_complete &= was_made and len(good) == len(files) - 1
            if good:
                self._make(topic, queue_id).open_files(good)
        return is_complete

    def _find(self) -> Iterator[tuple[str, int, Sequence[FoundFile]]]:
        folder = consume_queue_folder(self._root)
        for topic in self._files.folders(folder):
            try:
                check_topic(topic)
            except IllegalName as error:
                logger.warning("folder left alone folder=%s err=%s", folder / topic, error)
                continue
            for name in self._files.folders(folder / topic):
                if name.isascii() and name.isdigit() and name == str(int(name)):
                    yield topic, int(name), find_files(self._files, folder / topic / name)

    def delete(self, *topics: str) -> None:
        """Remove all queues of topics, durably."""
        deleted = frozenset(topics)
        for key in [key for key in self._queues if key[0] in deleted]:
            queue = self._queues.pop(key)
            if queue.files.files:
                queue.files.drop_from(0)
                self._files.remove(queue.files.folder)
            if queue.ext is not None and queue.ext.files.files:
                queue.ext.files.drop_from(0)
                self._files.remove(queue.ext.files.folder)
        for topic in topics:
            self._drop_folder(consume_queue_ext_folder(self._root) / topic)
            self._drop_folder(consume_queue_folder(self._root) / topic)

    def _drop_folder(self, folder: Path) -> None:
        if not self._files.exists(folder):
            return
        self._files.sync_folder(folder)
        if not self._files.files(folder) and not self._files.folders(folder):
            self._files.remove(folder)
            self._files.sync_folder(folder.parent)

    def take_dirty(self) -> Sequence[Path]:
        """Return the files with unsynced units; the caller syncs them."""
        return [path for queue in self._queues.values() for path in queue.take_dirty()]

    def take_new(self) -> UnsyncedNames:
        """Return the files and folders created since the last call; the caller syncs them."""
        new = [each for queue in self._queues.values() for each in queue.take_new()]
        files = [path for each in new for path in each.files]
        folders = dict.fromkeys(path for each in new for path in each.folders)
        return UnsyncedNames(files, tuple(folders))

    def close(self) -> None:
        """Unmap and close all files."""
        for queue in self._queues.values():
            queue.close()
        self._queues.clear()


def _row(files: Sequence[FoundFile], file_bytes: int) -> Sequence[FoundFile]:
    """Return the first files that follow each other and have the right length."""
    return files[: count_in_row([(file.base, file.file_bytes) for file in files], file_bytes)]


def unit_file_bytes(lengths: Sequence[int]) -> int:
    """Return the most frequent valid length of queue files; 0 if there is none."""
    for length, _ in Counter(lengths).most_common():
        if length > 0 and length % UNIT_BYTES == 0:
            return length
    return 0


def count_in_row(files: Sequence[tuple[int, int]], file_bytes: int) -> int:
    """Return how many of the first files follow each other and have the right length.

    Args:
        files: Base and length of each file.
        file_bytes: Right length.
    """
    for index, (base, length) in enumerate(files):
        expected = files[0][0] + index * file_bytes
        if length != file_bytes or base != expected or base % file_bytes:
            return index
    return len(files)
