"""Checks of the contiguous records of a pull, for messages and for columns.

Both forms accept and refuse the same records, with the same error. Records have no room for the
offset at which they were read, so an error names the physical offset in the header.
"""

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import OVERHEAD_BYTES, decode_record, read_physical_offset
from ternmq_model.record.layout import RecordLayout, lay_out


def lay_out_pulled(data: bytes, sizes: NDArray[np.int32]) -> RecordLayout:
    """Return the positions of the parts of contiguous records, at least one.

    Checksums are not verified.

    Args:
        data: The records.
        sizes: Length of each record. Their sum must be that of `data`.

    Raises:
        CorruptRecord: The sizes are wrong, in the reply or in a record.
    """
    lengths = sizes.astype(np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    if int(ends[-1]) != len(data) or int(lengths.min()) < OVERHEAD_BYTES:
        raise CorruptRecord(PhysicalOffset(0), "record sizes do not add up to the records")
    layout = lay_out(data, starts, ends, None)
    if isinstance(layout, int):
        raise _first_error(data, starts, ends)
    return layout


def check_bodies(layout: RecordLayout, checksums: Ints) -> None:
    """Compare the checksums of stored bodies with those in the headers. Empty bodies have none.

    Raises:
        CorruptRecord: A checksum differs.
    """
    headers = layout.headers
    differs = (checksums != headers["body_crc"]) & (headers["body_bytes"] > 0)
    if np.count_nonzero(differs):
        at = PhysicalOffset(int(headers["physical_offset"][differs.argmax()]))
        raise CorruptRecord(at, "the body's checksum differs")


def _first_error(data: bytes, starts: Ints, ends: Ints) -> CorruptRecord:
    """Return the error of the first record with wrong sizes."""
    for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
        reason = "its size differs from that of its reply"
        try:
            record = decode_record(data[begin:end], check_crc=False)
            if record is not None and record.header.total_bytes == end - begin:
                continue
        except CorruptRecord as error:
            reason = error.reason
        return CorruptRecord(read_physical_offset(data, begin), reason)
    raise AssertionError("the layout of a record was refused")
