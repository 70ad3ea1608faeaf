import pytest

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import encode_blank
from ternmq_store.replication.log_slice import check_slice, take_records
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.replicas import log_of
from tests.support.stores import append, open_store

FILE_BYTES = 8192


def log(*bodies: int) -> bytes:
    """Return a log with a record for each body length."""
    files = MemoryFileSystem()
    store = open_store(files)
    append(store, batch_of(*(record(body=bytes(size)) for size in bodies)))
    return log_of(files, store.max_physical)


def taken(
    data: bytes, at: int = 0, *, stop: int | None = None, bytes_max: int = 1 << 20
) -> bytes | None:
    """Return what is taken of a log whose file ends with `data`."""
    view = memoryview(data)
    return take_records(
        lambda start, length: view[start : start + length],
        PhysicalOffset(at),
        len(data) if stop is None else stop,
        file_end=FILE_BYTES,
        bytes_max=bytes_max,
    )


def test_whole_records_are_taken_up_to_a_number_of_bytes() -> None:
    data = log(100, 100, 100)
    size = len(data) // 3
    assert taken(data) == data
    assert taken(data, bytes_max=2 * size) == data[: 2 * size]
    assert taken(data, bytes_max=3 * size - 1) == data[: 2 * size]
    assert taken(data, size, stop=2 * size + 5) == data[size : 2 * size]


def test_longer_record_goes_alone() -> None:
    data = log(500, 20)
    first = int.from_bytes(data[:4], "big")
    assert taken(data, bytes_max=64) == data[:first]
    assert taken(data, bytes_max=first - 1) == data[:first]


def test_blank_record_goes_with_all_the_bytes_it_covers() -> None:
    data = log(100)
    whole = (data + encode_blank(FILE_BYTES - len(data))).ljust(FILE_BYTES, b"\0")
    assert taken(whole) == whole
    assert taken(whole, bytes_max=1000) == data, "it is too long to go with others"
    assert taken(whole, len(data), bytes_max=1000) == whole[len(data) :]


def test_bytes_without_a_record_make_no_piece() -> None:
    data = log(100, 100)
    assert taken(data, 5) is None
    assert taken(data, stop=len(data) // 2 - 1) is None
    assert taken(data.ljust(FILE_BYTES, b"\0"), len(data), stop=FILE_BYTES) is None


def test_good_piece_reports_its_newest_store_time() -> None:
    data = log(100, 0, 300)
    assert check_slice(data, PhysicalOffset(0), file_end=FILE_BYTES) == 1_700_000_000_000


def test_piece_with_the_end_of_its_file_is_good() -> None:
    data = log(100)
    whole = (data + encode_blank(FILE_BYTES - len(data))).ljust(FILE_BYTES, b"\0")
    at = PhysicalOffset(len(data))
    assert check_slice(whole, PhysicalOffset(0), file_end=FILE_BYTES) > 0
    assert check_slice(whole[at:], at, file_end=FILE_BYTES) == 0


@pytest.mark.parametrize("change", ["cut", "shifted", "longer", "forged", "moved", "no magic"])
def test_malformed_piece_is_refused(change: str) -> None:
    data, at = bytearray(log(100, 100, 100)), PhysicalOffset(0)
    size = len(data) // 3
    match change:
        case "cut":
            del data[-1]
        case "shifted":
            del data[:1]
        case "longer":
            data += b"\0"
        case "forged":
            data[size : size + 4] = (size - 1).to_bytes(4, "big")
        case "moved":
            at = PhysicalOffset(size)
        case _:
            data[2 * size + 4] ^= 1
    with pytest.raises(CorruptRecord):
        check_slice(bytes(data), at, file_end=FILE_BYTES)


def test_record_without_space_for_a_blank_one_behind_it_is_refused() -> None:
    data = log(100)
    with pytest.raises(CorruptRecord, match="blank"):
        check_slice(data, PhysicalOffset(0), file_end=len(data) + 7)
    assert check_slice(data, PhysicalOffset(0), file_end=len(data) + 8)


def test_blank_record_in_the_middle_of_a_file_is_refused() -> None:
    data = log(100)
    piece = data + encode_blank(40).ljust(40, b"\0")
    with pytest.raises(CorruptRecord):
        check_slice(piece, PhysicalOffset(0), file_end=FILE_BYTES)
