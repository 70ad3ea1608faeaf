"""Reading records that lie anywhere in the log, many in one go, in another thread."""

import contextlib
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record import BLANK_BYTES, RECORD_BYTES_MAX
from ternmq_store.disk.filesystem import File
from ternmq_store.disk.layout import base_of
from ternmq_store.reading.cold_read import check_one
from ternmq_store.reading.source import Source

_NO_FILE: Final = -1


class RecordPlace(NamedTuple):
    """Where a unit says that its record lies."""

    offset: int
    size: int


class ManyRecords:
    """One read; `run` may be called in any thread.

    Args:
        source: The log.
        places: What to read; None for a message that is gone.
        bytes_max: After so many bytes no more is read.

    Attributes:
        records: Of each place that was looked at, its record, or None when there is no good one.
    """

    def __init__(
        self, source: Source, places: Sequence[RecordPlace | None], *, bytes_max: int
    ) -> None:
        self._source = source
        self._places = places
        self._bytes_max = bytes_max
        self.records: list[bytes | None] = []

    def run(self) -> None:
        """Read.

        Raises:
            OSError: The disk failed.
        """
        self.records = []
        left, base, file = self._bytes_max, _NO_FILE, None
        with ExitStack() as stack:
            for place in self._places:
                if left <= 0:
                    break
                if place is None or not self._is_place(place):
                    self.records.append(None)
                    continue
                if base_of(place.offset, self._source.file_bytes) != base:
                    stack.close()
                    base, file = _NO_FILE, None
                    with contextlib.suppress(FileNotFoundError):
                        file, base = self._source.open(place.offset)
                        stack.callback(file.close)
                self.records.append(None if file is None else self._read(file, base, place))
                left -= place.size

    def _is_place(self, place: RecordPlace) -> bool:
        source = self._source
        is_within = source.start <= place.offset and place.offset + place.size <= source.end
        return is_within and BLANK_BYTES < place.size <= RECORD_BYTES_MAX

    def _read(self, file: File, base: int, place: RecordPlace) -> bytes | None:
        at = PhysicalOffset(place.offset)
        data = memoryview(file.read(place.offset - base, place.size + BLANK_BYTES))
        with contextlib.suppress(CorruptRecord):
            check_one(data, 0, at=at, size=place.size, verify=self._source.verify(at))
            return bytes(data[: place.size])
        return None
