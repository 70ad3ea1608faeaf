"""A window on one file of the log, by plain reads and in memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import (
    OFFSETS_BYTES,
    OVERHEAD_BYTES,
    claimed_offset,
    encode_blank,
    encode_record,
)
from ternmq_model.record.scanner import Verify
from ternmq_store.log.log_window import LogWindow, WalkStep
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import BORN_HOST, STORE_HOST

BASE = PhysicalOffset(1 << 20)

MakeWindow = Callable[[bytes | bytearray | memoryview], LogWindow]


def record_at(offset: int, body: bytes = b"body") -> bytes:
    return encode_record(
        topic=b"A",
        queue_id=0,
        body=body,
        properties=b"",
        born_at_ms=1,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        physical_offset=offset,
    )


def file_with(*places: int, file_bytes: int = 4096, body: bytes = b"body") -> bytearray:
    file = bytearray(file_bytes)
    for place in places:
        data = record_at(BASE + place, body)
        file[place : place + len(data)] = data
    return file


RECORD_BYTES = len(record_at(0))


@pytest.fixture(params=["view", "file", "pieces"])
def window(request: pytest.FixtureRequest) -> MakeWindow:
    def make(content: bytes | bytearray | memoryview) -> LogWindow:
        if request.param == "view":
            return LogWindow.of_view(memoryview(content), BASE)
        file = MemoryFileSystem().open(Path("/log"), create=True)
        file.resize(len(content))
        file.write(0, bytes(content))
        return LogWindow.of_file(file, BASE, piece_bytes=512 if request.param == "pieces" else 0)

    return make


def test_next_record_is_the_first_that_claims_its_place(window: MakeWindow) -> None:
    file = window(file_with(100, 1000))
    assert file.next_record(0) == 100
    assert file.next_record(100) == 100
    assert file.next_record(101) == 1000
    assert file.next_record(1001) is None
    assert file.next_record(101, 1000) is None
    assert file.next_record(101, 1001) == 1000
    assert LogWindow.of_view(memoryview(file_with(100)), 0).next_record(0) is None


def test_record_inside_another_is_skipped_unless_it_names_its_place(window: MakeWindow) -> None:
    file = file_with(2000)
    outer = record_at(BASE + 1, body=record_at(BASE + 500))
    file[100 : 100 + len(outer)] = outer
    assert window(file).next_record(0) == 2000


def test_blank_record_counts_where_it_reaches_the_end_of_the_file(window: MakeWindow) -> None:
    content = bytearray(4096)
    content[4000:4008] = encode_blank(96)
    content[3000:3008] = encode_blank(96)
    file = window(content)
    assert file.next_record(0) == 4000
    assert file.is_blank(4000)
    assert not file.is_blank(3000)
    assert not file.is_blank(4092)


def test_record_is_found_wherever_search_pieces_meet(window: MakeWindow) -> None:
    for place in range((1 << 20) - 40, (1 << 20) + 2):
        file = window(file_with(place, file_bytes=(1 << 20) + 4096))
        assert file.next_record(0) == place


def test_bytes_at_the_end_of_a_file_are_no_record(window: MakeWindow) -> None:
    file = window(file_with(100)[:130])
    assert not file.lies_at(100)
    assert file.next_record(0) is None


def test_content_is_what_is_not_zero(window: MakeWindow) -> None:
    content = bytearray(3 << 20)
    assert window(content).next_content(0) is None
    assert window(content).content_end(0) == 0
    assert window(content).content_end(77) == 77
    content[(1 << 20) + 9] = 1
    file = window(content)
    assert file.next_content(0) == 1 << 20
    assert file.next_content((1 << 20) + 10) is None
    assert file.content_end(0) == (1 << 20) + 10
    assert file.content_end(2 << 20) == 2 << 20


def step(file: LogWindow, position: int, **options: int) -> WalkStep:
    at, end = PhysicalOffset(BASE + position), BASE + file.file_bytes
    return file.step(at, end, verify=Verify.BODY, **options)


def test_step_returns_records_up_to_the_first_that_does_not_fit(window: MakeWindow) -> None:
    file = window(file_with(0, RECORD_BYTES, 2 * RECORD_BYTES))
    found = step(file, 0)
    assert found.batch is not None
    assert (len(found.batch), found.end, found.damage) == (3, BASE + 3 * RECORD_BYTES, "")
    short = step(file, 0, bytes_max=2 * RECORD_BYTES + 1)
    assert short.batch is not None
    assert (len(short.batch), short.end) == (2, BASE + 2 * RECORD_BYTES)


def test_step_reads_a_record_longer_than_a_step(window: MakeWindow) -> None:
    file = window(file_with(0, body=b"b" * 1000))
    found = step(file, 0, bytes_max=OVERHEAD_BYTES)
    assert found.batch is not None
    assert (len(found.batch), found.damage) == (1, "")


def test_step_over_a_blank_record_leads_to_the_end_of_the_file(window: MakeWindow) -> None:
    content = file_with(0)
    content[RECORD_BYTES : RECORD_BYTES + 8] = encode_blank(4096 - RECORD_BYTES)
    file = window(content)
    assert step(file, 0).end == BASE + RECORD_BYTES
    assert step(file, RECORD_BYTES) == WalkStep(None, PhysicalOffset(BASE + 4096))


def test_step_over_damage_leads_to_the_next_record(window: MakeWindow) -> None:
    content = file_with(0, 1000)
    content[RECORD_BYTES - 10] ^= 1
    file = window(content)
    found = step(file, 0)
    assert (found.batch, found.end) == (None, BASE + 1000)
    assert found.damage
    bounded = step(file, 0, search_bytes=300)
    assert (bounded.end, bool(bounded.damage)) == (BASE + 301, True)
    assert step(file, 301).end == BASE + 1000
    assert step(file, 1000 + RECORD_BYTES).end == BASE + 4096


def test_head_of_a_file_identifies_its_part_of_the_log() -> None:
    assert claimed_offset(bytes(file_with(0)[:OFFSETS_BYTES])) == BASE
    assert claimed_offset(bytes(OFFSETS_BYTES)) is None
    assert claimed_offset(b"") is None
