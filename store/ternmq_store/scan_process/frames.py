"""Frames between a scanning process and its broker. Pure.

A frame is a header of fixed length and a payload. The broker sends scan requests (JSON); the
process answers each with the schema, then record batches and words on how far it is, and an end. A
payload need not be looked at to be passed on, nor be there as a whole: `FrameReader` gives it out
piece by piece as it comes.
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
    """To the process: scan this range."""

    STOP = 2
    """To the process: nobody wants the rest of that range."""

    SCHEMA = 3
    """The first part of an Arrow stream. Begins every answer that is not refused at once."""

    BATCH = 4
    """A record batch of the stream."""

    PROGRESS = 5
    """No payload: so far everything was looked at."""

    END = 6
    """The range is over: the end of the stream, or nothing when it is so by `ScanRefusal`."""

    REFUSAL = 7
    """Reason why the scan ends before the range does; `END` follows."""


class FrameHeader(NamedTuple):
    """The fixed part of a frame."""

    kind: FrameKind
    request_id: int
    """The number of the request: what is left of an earlier one is told apart by it."""

    payload_bytes: int = 0
    next_offset: int = 0
    """Messages before it were looked at, and are in this batch or an earlier one if wanted."""

    damaged: int = 0
    rows: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanRequest:
    """A range of a queue that is to be scanned, and what of it is wanted."""

    root: str
    """The store's directory."""

    broker_name: str
    topic: str
    queue_id: int
    begin_offset: int
    end_offset: int
    """At most the end of what can be read of the queue."""

    log_end: int
    """The confirm offset: nothing above it is looked at."""

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
    """The log's files may be mapped: a disk that fails beneath a map ends the process."""

    def to_bytes(self) -> bytes:
        """Return it as a payload."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "ScanRequest":
        """Return what `to_bytes` wrote."""
        fields = json.loads(data)
        return cls(**fields | {name: tuple(fields[name]) for name in ("keys", "columns")})


@dataclass(frozen=True, slots=True)
class ScanRefusal:
    """Refusal that ends a scan."""

    code: ResponseCode
    remark: str

    def to_bytes(self) -> bytes:
        """Return it as a payload."""
        return json.dumps([int(self.code), self.remark]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "ScanRefusal":
        """Return what `to_bytes` wrote."""
        code, remark = json.loads(data)
        return cls(ResponseCode(code), remark)


def header_bytes(header: FrameHeader) -> bytes:
    """Return a header as it is written."""
    kind, request_id, payload_bytes, next_offset, damaged, rows = header
    return _HEADER.pack(kind, payload_bytes, request_id, next_offset, damaged, rows)


def frame_bytes(kind: FrameKind, request_id: int, payload: bytes = b"") -> bytes:
    """Return a short frame."""
    return header_bytes(FrameHeader(kind, request_id, len(payload))) + payload


def parse_header(data: bytes) -> FrameHeader:
    """Return the header that `data` is.

    Raises:
        ValueError: It is none.
    """
    kind, payload_bytes, request_id, next_offset, damaged, rows = _HEADER.unpack(data)
    return FrameHeader(FrameKind(kind), request_id, payload_bytes, next_offset, damaged, rows)


class FramePart(NamedTuple):
    """A part of a frame's payload, or the whole of an empty one."""

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
        """Yield the parts of frames in `data`, which follows the data before; use up the iterator.

        Raises:
            ValueError: That is no frame.
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
    """A part of the answer to a scan request; `payload` is bytes, or something like that."""

    kind: FrameKind
    payload: "bytes | memoryview" = b""
    next_offset: int = 0
    damaged: int = 0
    rows: int = 0


ScanAnswers = Callable[[ScanRequest], Iterator[ScanAnswer]]
"""Answers a request: gives out the schema, batches and progress, and the end or a refusal."""
