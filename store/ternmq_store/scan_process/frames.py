"""Frames between a scanning process and its broker. Pure.

A frame is a header of fixed length and a payload. The broker sends scan requests (JSON). The
process answers each with the schema, with record batches and progress, and with an end. The broker
passes payloads on without parsing: `FrameReader` yields a payload piece by piece.
"""

import enum
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from ternmq_model.response_code import ResponseCode

_HEADER: Final = struct.Struct("<BxxxIQqqq")
HEADER_BYTES: Final = _HEADER.size


class FrameKind(enum.IntEnum):
    """Kind of a frame."""

    REQUEST = 1
    """Request to the process to scan a range."""

    STOP = 2
    """Request to the process to stop the scan of a range."""

    SCHEMA = 3
    """Schema of the Arrow stream: the first frame of every answer that is not refused at once."""

    BATCH = 4
    """Record batch of the stream."""

    PROGRESS = 5
    """Progress of the scan up to `next_offset`, without payload."""

    END = 6
    """End of the range: the end of the Arrow stream, or no payload after a refusal."""

    REFUSAL = 7
    """Reason of an early end of the scan. `END` follows."""


class FrameHeader(NamedTuple):
    """Header of a frame."""

    kind: FrameKind
    request_id: int
    """Number of the request. Late frames of an earlier request have another number."""

    payload_bytes: int = 0
    next_offset: int = 0
    """Offset behind the last tested message. Matching messages before it are in the batches so far.
    """

    damaged: int = 0
    rows: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanRequest:
    """Range of a queue to scan, and the conditions and columns of the scan."""

    root: str
    """Directory of the store."""

    broker_name: str
    topic: str
    queue_id: int
    begin_offset: int
    end_offset: int
    """End of the range, at most the end of the readable queue."""

    log_end: int
    """Confirm offset of the log. Records above it are not read."""

    expression_type: str
    expression: str
    stored_from_ms: int
    stored_before_ms: int
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    batch_rows_max: int
    batch_bytes_max: int
    skips_damaged: bool
    may_map: bool
    """True = the log's files may be mapped. A disk error under a map kills the process."""

    def to_bytes(self) -> bytes:
        """Return the payload."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "ScanRequest":
        """Return the object in a payload."""
        fields = json.loads(data)
        return cls(**fields | {name: tuple(fields[name]) for name in ("keys", "columns")})


@dataclass(frozen=True, slots=True)
class ScanRefusal:
    """Refusal that ends a scan."""

    code: ResponseCode
    remark: str

    def to_bytes(self) -> bytes:
        """Return the payload."""
        return json.dumps([int(self.code), self.remark]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "ScanRefusal":
        """Return the object in a payload."""
        code, remark = json.loads(data)
        return cls(ResponseCode(code), remark)


def header_bytes(header: FrameHeader) -> bytes:
    """Return the bytes of a header."""
    kind, request_id, payload_bytes, next_offset, damaged, rows = header
    return _HEADER.pack(kind, payload_bytes, request_id, next_offset, damaged, rows)


def frame_bytes(kind: FrameKind, request_id: int, payload: bytes = b"") -> bytes:
    """Return the bytes of a short frame."""
    return header_bytes(FrameHeader(kind, request_id, len(payload))) + payload


def parse_header(data: bytes) -> FrameHeader:
    """Return the header in `data`.

    Raises:
        ValueError: The bytes are no header.
    """
    kind, payload_bytes, request_id, next_offset, damaged, rows = _HEADER.unpack(data)
    return FrameHeader(FrameKind(kind), request_id, payload_bytes, next_offset, damaged, rows)


class FramePart(NamedTuple):
    """Part of a frame's payload; an empty payload is one part."""

    header: FrameHeader
    data: bytes
    is_last: bool


class FrameReader:
    """Parser of a byte stream into parts of frames. Owned by the reader of the pipe."""

    def __init__(self) -> None:
        self._head = b""
        self._frame: FrameHeader | None = None
        self._left = 0

    def feed(self, data: bytes) -> Iterator[FramePart]:
        """Yield the parts of frames in `data`, the next bytes of the stream. Exhaust the iterator.

        Raises:
            ValueError: The bytes are no frame.
        """
        at = 0
        while at < len(data):
            if self._frame is None:
                taken = data[at : at + HEADER_BYTES - len(self._head)]
                self._head += taken
                at += len(taken)
                if len(self._head) < HEADER_BYTES:
                    return
                self._frame, self._head = parse_header(self._head), b""
                self._left = self._frame.payload_bytes
                if not self._left:
                    frame, self._frame = self._frame, None
                    yield FramePart(frame, b"", is_last=True)
                continue
            part = data[at : at + self._left] if at or self._left < len(data) else data
            at += len(part)
            self._left -= len(part)
            frame, is_last = self._frame, not self._left
            if is_last:
                self._frame = None
            yield FramePart(frame, part, is_last)


class ScanAnswer(NamedTuple):
    """Part of the answer to a scan request. `payload` is a buffer of bytes."""

    kind: FrameKind
    payload: "bytes | memoryview" = b""
    next_offset: int = 0
    damaged: int = 0
    rows: int = 0


ScanAnswers = Callable[[ScanRequest], Iterator[ScanAnswer]]
"""Function that yields the answer to a request: schema, batches and progress, end or refusal."""
