"""Compressed bodies: RocketMQ's three formats, and how `sysFlag` tells them apart.

zlib is always there. LZ4 frames and Zstandard frames need the packages of the extra `compression`.

Source: RocketMQ `CompressionType`, `MessageSysFlag`, `ZlibCompressor`, `Lz4Compressor`,
`ZstdCompressor`.
"""

import contextlib
import importlib
import zlib
from typing import Any, Final, Literal

from ternmq_model.errors import ConfigError, CorruptBody, MissingPackage
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import BODY_BYTES_MAX
from ternmq_model.version import install_command

Format = Literal["zlib", "lz4", "zstd"]

FLAG_COMPRESSED: Final = 0x1
_TYPE_MASK: Final = 0x700
_TYPES: Final[dict[Format, int]] = {"lz4": 0x100, "zstd": 0x200, "zlib": 0x300}
_NAMES: Final[dict[int, Format]] = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}
"""RocketMQ 4 producers set no type: theirs is zlib."""

DECOMPRESSED_BYTES_MAX: Final = BODY_BYTES_MAX
"""Longest body that a compressed one may become: what could have been sent as it is. A few bytes
can be made to become gigabytes; whoever finds more than this refuses the body."""

_WINDOW_BYTES_MAX: Final = 8 << 20
FRAMES_MAX: Final = 64
"""LZ4 or Zstandard frames of one body. Each costs a copy of what follows it; producers write a
single one."""

_LEVELS: Final[dict[Format, range]] = {
    "zlib": range(10),
    "lz4": range(17),
    "zstd": range(1, 23),
}
LEVEL_DEFAULTS: Final[dict[Format, int]] = {"zlib": 5, "lz4": 0, "zstd": 3}


class _TooManyFrames(Exception):
    """A body has more frames than `FRAMES_MAX`."""


def check_format(name: str, level: int | None, *, setting: str) -> None:
    """Refuse a compression that cannot be done here.

    Raises:
        ConfigError: There is no such format or level.
        MissingPackage: Its package is not installed.
    """
    if name not in _LEVELS:
        raise ConfigError(setting, name, f"must be one of {', '.join(_LEVELS)}, or None")
    levels = _LEVELS[name]
    if level is not None and level not in levels:
        rule = f"must be {levels.start} to {levels.stop - 1} for {name}"
        raise ConfigError(f"{setting}_level", level, rule)
    if name == "lz4":
        _lz4()
    elif name == "zstd":
        _zstd()


def compress(body: bytes, name: Format, level: int) -> tuple[bytes, int]:
    """Return `body` compressed, with the bits of `sysFlag` that say so; itself and 0 if longer.

    Args:
        body: Anything.
        name: One of the formats, which `check_format` has let pass.
        level: Of that format.
    """
    if name == "zlib":
        done = zlib.compress(body, level)
    elif name == "lz4":
        # RocketMQ refuses frames whose blocks depend on earlier ones.
        done = _lz4().compress(body, compression_level=level, block_linked=False)
    else:
        done = _zstd().ZstdCompressor(level=level).compress(body)
    return (done, FLAG_COMPRESSED | _TYPES[name]) if len(done) < len(body) else (body, 0)


def decompress(body: bytes, sys_flag: int, *, at: PhysicalOffset) -> bytes:
    """Return what `body` was before it was compressed; itself when it was not.

    Args:
        body: As it is stored.
        sys_flag: Of its record.
        at: Where the record is, for the error.

    Raises:
        CorruptBody: It is not what its flags say, or would be longer than `DECOMPRESSED_BYTES_MAX`.
        MissingPackage: Its format's package is not installed.
    """
    if not sys_flag & FLAG_COMPRESSED:
        return body
    name = _NAMES.get(sys_flag & _TYPE_MASK)
    if name is None:
        raise CorruptBody(at, f"compressed in an unknown way: sys flag {sys_flag:#x}")
    if not body:
        return b""
    try:
        plain = {"zlib": _inflate, "lz4": _unpack_lz4, "zstd": _unpack_zstd}[name](body)
    except _TooManyFrames:
        reason = f"the body has more than {FRAMES_MAX} {name} frames"
        raise CorruptBody(at, reason) from None
    if plain is None:
        raise CorruptBody(at, f"the body is not what {name} makes, or a part of it is missing")
    if len(plain) > DECOMPRESSED_BYTES_MAX:
        reason = f"the body becomes longer than {DECOMPRESSED_BYTES_MAX} bytes"
        raise CorruptBody(at, reason)
    return plain


def _inflate(body: bytes) -> bytes | None:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, DECOMPRESSED_BYTES_MAX + 1)
    except zlib.error:
        return None
    return plain if inflater.eof or len(plain) > DECOMPRESSED_BYTES_MAX else None


def _unpack_lz4(body: bytes) -> bytes | None:
    plain = b""
    for _ in range(FRAMES_MAX):
        unpacker = _lz4().LZ4FrameDecompressor()
        try:
            most = DECOMPRESSED_BYTES_MAX + 1 - len(plain)
            more: bytes = unpacker.decompress(body, max_length=most)
        except (RuntimeError, EOFError, ValueError):
            return None
        plain += more
        if len(plain) > DECOMPRESSED_BYTES_MAX:
            return plain
        if not unpacker.eof:
            return None
        body = unpacker.unused_data
        if not body:
            return plain
    raise _TooManyFrames


def _unpack_zstd(body: bytes) -> bytes | None:
    zstd = _zstd()
    unpacker = zstd.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
    try:
        if 0 < zstd.frame_content_size(body) <= DECOMPRESSED_BYTES_MAX:
            with contextlib.suppress(zstd.ZstdError):  # something comes behind the frame
                return bytes(unpacker.decompress(body, allow_extra_data=False))
        plain: bytes = unpacker.stream_reader(body, read_across_frames=True).read(
            DECOMPRESSED_BYTES_MAX + 1
        )
        if len(plain) > DECOMPRESSED_BYTES_MAX:
            return plain
        for _ in range(FRAMES_MAX):  # a reader does not tell that the end is missing
            frame = unpacker.decompressobj()
            frame.decompress(body)
            if not frame.eof:
                return None
            body = frame.unused_data
            if not body:
                return plain
    except zstd.ZstdError:
        return None
    raise _TooManyFrames


def _lz4() -> Any:
    return _package("lz4.frame", "lz4")


def _zstd() -> Any:
    return _package("zstandard", "zstd")


def _package(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingPackage(
            f"compression {name!r} needs a package that is not installed: "
            + install_command("compression")
        ) from None
