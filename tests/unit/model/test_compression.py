import os
import sys
import zlib
from typing import Any, cast

import numpy as np
import pytest

from ternmq_model.compression import (
    DECOMPRESSED_BYTES_MAX,
    FRAMES_MAX,
    LEVEL_DEFAULTS,
    Format,
    check_format,
    compress,
    decompress,
)
from ternmq_model.errors import ConfigError, CorruptBody, MissingPackage
from ternmq_model.message_batch import decode_records
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.queue import MessageQueue
from tests.support.records import record, sizes_of

AT = PhysicalOffset(7)
TEXT = b"".join(b"flight %d from EWR to IAH;" % n for n in range(400))
FORMATS: list[Format] = ["zlib", "lz4", "zstd"]


def needs(name: Format) -> None:
    if name != "zlib":
        pytest.importorskip({"lz4": "lz4.frame", "zstd": "zstandard"}[name])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("body", [TEXT, b"x" * DECOMPRESSED_BYTES_MAX, TEXT[:100]])
def test_body_survives_compression(name: Format, body: bytes) -> None:
    needs(name)
    packed, flags = compress(body, name, LEVEL_DEFAULTS[name])
    assert len(packed) <= len(body)
    assert decompress(packed, flags | 0x30, at=AT) == body


def test_compression_flags_equal_rocketmqs() -> None:
    assert compress(TEXT, "zlib", 5)[1] == 0x301
    assert compress(TEXT, "zlib", 5)[0][:1] == b"\x78"  # RFC 1950, with its header
    assert decompress(zlib.compress(TEXT), 0x1, at=AT) == TEXT  # as RocketMQ 4 says it
    assert decompress(TEXT, 0x300, at=AT) == TEXT  # a type alone says nothing
    needs("lz4")
    needs("zstd")
    assert compress(TEXT, "lz4", 0)[1] == 0x101
    assert compress(TEXT, "lz4", 0)[0][:4] == b"\x04\x22\x4d\x18"
    assert compress(TEXT, "zstd", 3)[1] == 0x201
    assert compress(TEXT, "zstd", 3)[0][:4] == b"\x28\xb5\x2f\xfd"


@pytest.mark.parametrize("level", [0, 3, 9, 16])
@pytest.mark.parametrize("size", [4096, 65_536, 65_537, 262_145, 1 << 20, DECOMPRESSED_BYTES_MAX])
def test_lz4_frame_has_independent_blocks(size: int, level: int) -> None:
    # RocketMQ's reader: "Dependent block stream is unsupported (BLOCK_INDEPENDENCE must be set)".
    needs("lz4")
    body = (TEXT * (size // len(TEXT) + 1))[:size]
    packed, flags = compress(body, "lz4", level)
    assert packed[4] & 0xE0 == 0x60, "version 1 with independent blocks"
    assert decompress(packed, flags, at=AT) == body


@pytest.mark.parametrize("name", ["lz4", "zstd"])
def test_frames_behind_the_first_are_read(name: Format) -> None:
    needs(name)
    packed, flags = compress(TEXT, name, 3)
    skipped = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    run = compress(bytes(200_000), name, 3)[0]
    for frames, body in (
        (packed + packed, TEXT + TEXT),
        (packed + skipped, TEXT),
        (skipped + packed, TEXT),
        (packed + run + packed, TEXT + bytes(200_000) + TEXT),
    ):
        assert decompress(frames, flags, at=AT) == body
    bomb = compress(bytes(DECOMPRESSED_BYTES_MAX), name, 3)[0]
    with pytest.raises(CorruptBody, match="longer than 4194304"):
        decompress(bomb + packed, flags, at=AT)
    for rest in (b"x", b"junk", packed[:3], packed[:9], packed[:-1], bytes(100), skipped[:-1]):
        with pytest.raises(CorruptBody, match="a part of it is missing"):
            decompress(packed + rest, flags, at=AT)


@pytest.mark.parametrize("name", ["lz4", "zstd"])
def test_number_of_frames_is_bounded_and_named(name: Format) -> None:
    needs(name)
    packed, flags = compress(TEXT, name, 3)
    skipped = b"\x50\x2a\x4d\x18\0\0\0\0"
    assert decompress(packed + skipped * (FRAMES_MAX - 1), flags, at=AT) == TEXT
    for frames in (packed + skipped * FRAMES_MAX, skipped * 1000):
        with pytest.raises(CorruptBody, match=f"more than {FRAMES_MAX} {name} frames"):
            decompress(frames, flags, at=AT)


class CountedBytes(bytes):
    """Bytes that know how often Python looked into them."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        self.looks += 1
        return cast("Any", super().__getitem__(key))


@pytest.mark.parametrize("head", [b"\0\x40", b"\x20\0"], ids=["unknown size", "size 0"])
def test_zstandard_body_of_empty_blocks_costs_no_loop_over_them(head: bytes) -> None:
    pytest.importorskip("zstandard")
    blocks = b"\0\0\0" * (1 << 20) + b"\1\0\0"
    body = CountedBytes(b"\x28\xb5\x2f\xfd" + head + blocks)
    assert decompress(body, 0x201, at=AT) == b""
    assert body.looks < 100


def test_incompressible_body_stays_as_it_is() -> None:
    noise = os.urandom(5000)
    assert compress(noise, "zlib", 5) == (noise, 0)


@pytest.mark.parametrize("name", FORMATS)
def test_broken_bodies_and_bombs_are_refused(name: Format) -> None:
    needs(name)
    packed, flags = compress(TEXT, name, LEVEL_DEFAULTS[name])
    for broken in (packed[:-6], packed[:9], b"\0" * 40, b"?" + packed[1:]):
        with pytest.raises(CorruptBody, match="physical offset 7"):
            decompress(broken, flags, at=AT)
    bomb, flags = compress(bytes(DECOMPRESSED_BYTES_MAX + 1), name, LEVEL_DEFAULTS[name])
    with pytest.raises(CorruptBody, match="longer than 4194304"):
        decompress(bomb, flags, at=AT)
    with pytest.raises(CorruptBody, match="unknown compression"):
        decompress(packed, 0x401, at=AT)


def test_zstandard_without_a_declared_length_is_bounded_too() -> None:
    zstd = pytest.importorskip("zstandard")
    for body, is_bomb in ((TEXT, False), (bytes(64 << 20), True)):
        packer = zstd.ZstdCompressor().compressobj()
        packed = packer.compress(body) + packer.flush()
        if is_bomb:
            with pytest.raises(CorruptBody, match="longer"):
                decompress(packed, 0x201, at=AT)
        else:
            assert decompress(packed, 0x201, at=AT) == body
            with pytest.raises(CorruptBody, match="missing"):
                decompress(packed[:-5], 0x201, at=AT)


@pytest.mark.parametrize(
    ("name", "level", "setting"),
    [("gzip", None, "x"), ("zlib", 10, "x_level"), ("zlib", -2, "x_level")],
)
def test_unknown_format_or_level_is_named(name: str, level: int, setting: str) -> None:
    with pytest.raises(ConfigError) as told:
        check_format(name, level, setting="x")
    assert told.value.setting == setting


def test_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("lz4.frame", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    check_format("zlib", 5, setting="x")
    for name, flags in (("lz4", 0x101), ("zstd", 0x201)):
        with pytest.raises(MissingPackage, match=r"ternmq\[compression\]"):
            check_format(name, None, setting="x")
        with pytest.raises(MissingPackage):
            decompress(b"x", flags, at=AT)


def test_broken_body_leaves_the_other_messages_alone() -> None:
    packed, flags = compress(TEXT, "zlib", 5)
    records = [
        record(body=b"plain"),
        record(body=packed, sys_flag=flags),
        record(body=packed[:-4], sys_flag=flags),
        record(body=packed, sys_flag=flags),
    ]
    read = decode_records(b"".join(records), sizes_of(records), MessageQueue("T", "b", 0))
    assert read[0].body == read[0].stored_body == b"plain"
    assert read[1].body is read[1].body
    assert [read[1].body, read[3].body] == [TEXT, TEXT]
    assert read[1].stored_body == packed
    with pytest.raises(CorruptBody):
        _ = read[2].body
    assert read[2].stored_body == read[2].readable_body == packed[:-4]
    assert read[1].readable_body == TEXT
    assert np.array([message.sys_flag for message in read]).tolist() == [0, flags, flags, flags]
