"""A scanning process without a store, which answers each request with made-up bytes: for tests.

The request's topic says how it behaves.
"""

from collections.abc import Iterator

from ternmq_model.response_code import ResponseCode
from ternmq_store.scan_process.child import main
from ternmq_store.scan_process.frames import FrameKind, ScanAnswer, ScanRefusal, ScanRequest

SCHEMA = b"\xff\xff\xff\xff" + (4).to_bytes(4, "little") + b"schm"
"""As long as it says that it is."""


def answer(request: ScanRequest) -> Iterator[ScanAnswer]:
    """Give as many rows as were asked for, so many in each batch of so many bytes."""
    yield ScanAnswer(FrameKind.SCHEMA, SCHEMA)
    at = request.begin_offset
    while at < request.end_offset:
        if request.topic == "Dies" and at > request.begin_offset:
            raise SystemExit(3)
        if request.topic == "Refuses" and at > request.begin_offset:
            yield ScanAnswer(
                FrameKind.REFUSAL, ScanRefusal(ResponseCode.SYSTEM_ERROR, "is bad").to_bytes()
            )
            break
        rows = min(request.batch_rows_max, request.end_offset - at)
        at += rows
        if request.topic == "Nothing":
            yield ScanAnswer(FrameKind.PROGRESS, next_offset=at)
        else:
            data = at.to_bytes(8, "big") * (request.batch_bytes_max // 8)
            yield ScanAnswer(FrameKind.BATCH, data, at, 0, rows)
    yield ScanAnswer(FrameKind.END, b"\xff\xff\xff\xff\0\0\0\0", at)


if __name__ == "__main__":
    main(lambda: answer)
