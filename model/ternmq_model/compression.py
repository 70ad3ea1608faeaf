"""Compressed bodies in RocketMQ's three formats, and their bits in `sysFlag`.

zlib is always available. LZ4 and Zstandard frames need the packages of the extra `compression`.

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
"""Formats by their bits. Producers of RocketMQ 4 set no bits and use zlib."""

DECOMPRESSED_BYTES_MAX: Final = BODY_BYTES_MAX
"""Most bytes of a decompressed body: the limit of uncompressed bodies. A few bytes can expand to
gigabytes, so a larger body is refused."""

_WINDOW_BYTES_MAX: Final = 8 << 20
FRAMES_MAX: Final = 64
"""Most LZ4 or Zstandard frames of one body. Each frame costs a copy of the bytes behind it.
Producers write one frame."""

_LEVELS: Final[dict[Format, range]] = {
    "zlib": range(10),
    "lz4": range(17),
    "zstd": range(1, 23),
}
LEVEL_DEFAULTS: Final[dict[Format, int]] = {"zlib": 5, "lz4": 0, "zstd": 3}


class _TooManyFrames(Exception):
    """Error for a body with more frames than `FRAMES_MAX`."""


def check_format(name: str, level: int | None, *, setting: str) -> None:
    """Check that this process supports a compression.

    Raises:
        ConfigError: The format or level does not exist.
        MissingPackage: The package of the format is not installed.
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
    """Return the compressed `body` with its bits of `sysFlag`; `body` and 0 if that is longer.

    Args:
        body: Bytes to compress.
        name: Format that `check_format` has accepted.
        level: Level of the format.
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
    """Return the decompressed `body`; `body` itself if it is not compressed.

    Args:
        body: Stored body.
        sys_flag: `sysFlag` of the record.
        at: Log offset of the record, for the error.

    Raises:
        CorruptBody: The body does not fit its flags, or exceeds `DECOMPRESSED_BYTES_MAX`.
        MissingPackage: The package of the format is not installed.
    """
    if not sys_flag & FLAG_COMPRESSED:
        return body
    name = _NAMES.get(sys_flag & _TYPE_MASK)
    if name is None:
        raise CorruptBody(at, f"unknown compression: sys flag {sys_flag:#x}")
    if not body:
        return b""
    try:
        plain = {"zlib": _inflate, "lz4": _unpack_lz4, "zstd": _unpack_zstd}[name](body)
    except _TooManyFrames:
        reason = f"the body has more than {FRAMES_MAX} {name} frames"
        raise CorruptBody(at, reason) from None
    if plain is None:
        raise CorruptBody(at, f"the body is no valid {name} data, or a part of it is missing")
    if len(plain) > DECOMPRESSED_BYTES_MAX:
        reason = f"the decompressed body is longer than {DECOMPRESSED_BYTES_MAX} bytes"
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
        for _ in range(FRAMES_MAX):  # a reader does not report a missing end
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
