"""What this store writes, byte for byte, against the tables of RocketMQ's formats.

The decoder here knows nothing of the product's code: it reads with `struct` what the tables say.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.message_store import MessageStore
from tests.support.records import BORN_HOST, STORE_HOST, batch_of, record
from tests.support.stores import HandClock, settle

LOG_FILE_BYTES: Final = 16_384
QUEUE_UNITS: Final = 7
SLOTS: Final = 50
ENTRIES: Final = 40
NOW_MS: Final = 1_763_000_000_123
V1: Final = 0xDAA320A7
BLANK: Final = 0xCBD43194
BORN_V6: Final = bytes(range(1, 17)) + (40_001).to_bytes(4, "big")
STORE_V6: Final = bytes(range(101, 117)) + (10_912).to_bytes(4, "big")


@dataclass(frozen=True)
class Sent:
    """A message that a test appends."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    is_v6: bool
    sys_flag: int = 0


def sent_messages() -> list[Sent]:
    """Return messages of all kinds: about forty, in three topics."""
    found: list[Sent] = []
    for number in range(42):
        properties = {"UNIQ_KEY": f"{number:032X}"}
        if number % 3:
            properties["TAGS"] = ("TagA", "größe", "𝄞clef")[number % 3]
        if number % 4 == 1:
            properties["KEYS"] = f"k{number} shared ключ{number}"
        if number % 7 == 0:
            del properties["UNIQ_KEY"]
        topic = ("Orders", "T" * 127, "%RETRY%group_1")[number % 3]
        body = bytes((number,)) * (0, 11, 900, 2_500)[number % 4]
        found.append(
            Sent(
                topic,
                number % 2,
                body,
                properties,
                number % 5 == 2,
                (0, 1, 0x101, 0x201)[number % 4],
            )
        )
    return found


def write_store(root: Path, *, is_checksummed: bool) -> list[Sent]:
    """Write and close a store."""
    config = StoreConfig(
        commit_log_file_bytes=LOG_FILE_BYTES,
        consume_queue_file_units=QUEUE_UNITS,
        index_slots=SLOTS,
        index_entries=ENTRIES,
        record_checksum=is_checksummed,
    )
    clock = HandClock(NOW_MS)
    store = MessageStore.open(root, config, FlushMode.SYNC, RealFileSystem(), clock)
    messages = sent_messages()
    for sent in messages:
        born, stored = (BORN_V6, STORE_V6) if sent.is_v6 else (BORN_HOST, STORE_HOST)
        built = record(
            sent.topic,
            sent.queue_id,
            sent.body,
            sent.properties,
            sys_flag=sent.sys_flag,
            born_host=born,
            store_host=stored,
        )
        clock.now_ms += 700
        batch = batch_of(built, host_bytes=len(born))
        store.append(batch, born_host=born, store_host=stored)
        settle(store)
    store.close()
    return messages


@dataclass(frozen=True)
class Found:
    """A record as the tables say it lies there."""

    at: int
    raw: bytes
    queue_id: int
    queue_offset: int
    stored_at_ms: int
    topic: str
    properties: dict[str, str]


def read_log(root: Path) -> Iterator[Found | int]:
    """Give the records, and for each blank record its offset; everything is checked on the way."""
    paths = sorted((root / "commitlog").iterdir())
    for number, path in enumerate(paths):
        assert path.name == f"{number * LOG_FILE_BYTES:020d}"
        data = path.read_bytes()
        assert len(data) == LOG_FILE_BYTES
        position = 0
        while True:
            total, magic = struct.unpack_from(">iI", data, position)
            if (total, magic) == (0, 0):
                assert path == paths[-1]
                assert not any(data[position:])
                return
            if magic == BLANK:
                assert total == LOG_FILE_BYTES - position >= 8
                assert not any(data[position + 8 :])
                yield number * LOG_FILE_BYTES + position
                break
            yield read_record(data, position, number * LOG_FILE_BYTES + position)
            position += total
            assert position <= LOG_FILE_BYTES - 8


def read_record(data: bytes, start: int, at: int) -> Found:
    """Read a record field by field."""
    position = start

    def take(form: str) -> int:
        nonlocal position
        (value,) = struct.unpack_from(">" + form, data, position)
        position += struct.calcsize(">" + form)
        assert isinstance(value, int)
        return value

    def take_bytes(length: int) -> bytes:
        nonlocal position
        position += length
        return data[position - length : position]

    total, magic, crc, queue_id, flag = take("i"), take("I"), take("i"), take("i"), take("i")
    assert (magic, flag) == (V1, 0)
    queue_offset, physical = take("q"), take("q")
    assert physical == at
    sys_flag, born_ms = take("i"), take("q")
    assert born_ms == 1_700_000_000_000
    is_v6 = sys_flag & 0x30
    assert is_v6 in (0, 0x30)
    assert take_bytes(20 if sys_flag & 0x10 else 8) == (BORN_V6 if is_v6 else BORN_HOST)
    stored_ms = take("q")
    assert take_bytes(20 if sys_flag & 0x20 else 8) == (STORE_V6 if is_v6 else STORE_HOST)
    assert (take("i"), take("q")) == (0, 0), "reconsume times, prepared offset"
    body = take_bytes(take("i"))
    assert crc == (zlib.crc32(body) & 0x7FFFFFFF if body else 0)
    topic = take_bytes(take("b")).decode()
    text = take_bytes(take("h"))
    assert position - start == total
    assert not text or text.endswith(b"\x02")
    pairs = [pair.split(b"\x01", 1) for pair in text.split(b"\x02")[:-1]]
    properties = {name.decode(): value.decode() for name, value in pairs}
    if "__CRC32#" in properties:
        assert pairs[-1][0] == b"__CRC32#"
        expected = zlib.crc32(data[start : position - 20]) & 0x7FFFFFFF
        assert properties.pop("__CRC32#") == f"{expected:010d}"[::-1]
        assert text[-20:-11] == b"__CRC32#\x01"
    return Found(at, data[start:position], queue_id, queue_offset, stored_ms, topic, properties)


def java_hash(text: str) -> int:
    """Compute Java's hash of a text, as an int of 32 bits."""
    units = struct.unpack(f">{len(text.encode('utf-16-be')) // 2}H", text.encode("utf-16-be"))
    code = 0
    for unit in units:
        code = (31 * code + unit) % (1 << 32)
    return code - (1 << 32) if code >= 1 << 31 else code


def records_of(root: Path) -> list[Found]:
    """Return the records."""
    return [found for found in read_log(root) if isinstance(found, Found)]


@pytest.mark.parametrize("is_checksummed", [True, False])
def test_every_byte_of_the_log_matches_the_tables(tmp_path: Path, *, is_checksummed: bool) -> None:
    messages = write_store(tmp_path, is_checksummed=is_checksummed)
    found = records_of(tmp_path)
    assert len(found) == len(messages)
    offsets: dict[tuple[str, int], int] = {}
    for number, (one, sent) in enumerate(zip(found, messages, strict=True), 1):
        assert (one.topic, one.queue_id) == (sent.topic, sent.queue_id)
        assert one.properties == sent.properties
        assert one.stored_at_ms == NOW_MS + 700 * number
        key = (one.topic, one.queue_id)
        assert one.queue_offset == offsets.get(key, 0)
        offsets[key] = one.queue_offset + 1
        overhead = 91 + (24 if sent.is_v6 else 0)
        text = "".join(f"{name}\x01{value}\x02" for name, value in sent.properties.items())
        extra = 20 if is_checksummed else 0
        length = overhead + len(sent.body) + len(sent.topic) + len(text.encode()) + extra
        assert len(one.raw) == length
    blanks = [at for at in read_log(tmp_path) if isinstance(at, int)]
    assert len(blanks) == len(list((tmp_path / "commitlog").iterdir())) - 1 >= 2
    for at in blanks:
        (following,) = [
            one for one in found if one.at == (at // LOG_FILE_BYTES + 1) * LOG_FILE_BYTES
        ]
        assert len(following.raw) + 8 > LOG_FILE_BYTES - at % LOG_FILE_BYTES


def test_every_byte_of_the_consume_queues_matches_the_tables(tmp_path: Path) -> None:
    write_store(tmp_path, is_checksummed=True)
    expected: dict[tuple[str, int], list[bytes]] = {}
    for one in records_of(tmp_path):
        code = java_hash(one.properties["TAGS"]) if "TAGS" in one.properties else 0
        unit = struct.pack(">qiq", one.at, len(one.raw), code)
        units = expected.setdefault((one.topic, one.queue_id), [])
        assert one.queue_offset == len(units)
        units.append(unit)
    folders = [path for path in (tmp_path / "consumequeue").glob("*/*")]
    assert {(path.parent.name, int(path.name)) for path in folders} == set(expected)
    file_bytes = QUEUE_UNITS * 20
    for folder in folders:
        units = expected[folder.parent.name, int(folder.name)]
        paths = sorted(folder.iterdir())
        names = [f"{number * file_bytes:020d}" for number in range(len(paths))]
        assert [path.name for path in paths] == names
        data = b"".join(path.read_bytes() for path in paths)
        assert len(data) == len(paths) * file_bytes
        assert (len(paths) - 1) * QUEUE_UNITS <= len(units)
        assert data == b"".join(units).ljust(len(data), b"\0")


def test_every_byte_of_the_index_matches_the_tables(tmp_path: Path) -> None:
    write_store(tmp_path, is_checksummed=True)
    keys: list[tuple[int, int, int]] = []
    for one in records_of(tmp_path):
        names = [one.properties["UNIQ_KEY"]] if "UNIQ_KEY" in one.properties else []
        names += [key for key in one.properties.get("KEYS", "").split(" ") if key]
        for name in names:
            code = abs(java_hash(f"{one.topic}#{name}"))
            keys.append((code if code < 1 << 31 else 0, one.at, one.stored_at_ms))
    paths = sorted((tmp_path / "index").iterdir())
    per_file = ENTRIES - 1
    assert len(paths) == -(-len(keys) // per_file) >= 2
    for number, path in enumerate(paths):
        assert re.fullmatch(r"20\d{15}", path.name)
        assert path.read_bytes() == index_bytes(keys[number * per_file :][:per_file])


def index_bytes(keys: list[tuple[int, int, int]]) -> bytes:
    """Return an index file with these hashes, offsets and store times, as the tables say."""
    slots, entries = [0] * SLOTS, [bytes(20)]
    (_, begin, begin_ms), (_, end, end_ms) = keys[0], keys[-1]
    for code, offset, stored_ms in keys:
        seconds = (stored_ms - begin_ms) // 1000
        entries.append(struct.pack(">iqii", code, offset, seconds, slots[code % SLOTS]))
        slots[code % SLOTS] = len(entries) - 1
    used = sum(slot > 0 for slot in slots)
    head = struct.pack(">qqqqii", begin_ms, end_ms, begin, end, used, len(entries))
    body = b"".join(entries).ljust(ENTRIES * 20, b"\0")
    return head + struct.pack(f">{SLOTS}i", *slots) + body


def test_checkpoint_has_its_five_fields_and_its_length(tmp_path: Path) -> None:
    messages = write_store(tmp_path, is_checksummed=True)
    data = (tmp_path / "checkpoint").read_bytes()
    assert len(data) == 4096
    log_ms, queues_ms, index_ms, _, _ = struct.unpack_from(">5q", data)
    assert log_ms == queues_ms == NOW_MS + 700 * len(messages)
    assert index_ms in (0, log_ms)
    assert not any(data[40:])
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "lock").read_bytes() == b"lock"
