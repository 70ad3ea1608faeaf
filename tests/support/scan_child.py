"""A scanning process without a store: answers each wish with made-up bytes, for tests of its ways.

The wish's topic says how it behaves.
"""

from collections.abc import Iterator

from ternmq_model.response_code import ResponseCode
from ternmq_store.scan_process.child import main
from ternmq_store.scan_process.frames import Answer, Kind, Refusal, Wish

SCHEMA = b"\xff\xff\xff\xff" + (4).to_bytes(4, "little") + b"schm"
"""As long as it says that it is."""


def answer(wish: Wish) -> Iterator[Answer]:
    """Give as many rows as were asked for, so many in each batch of so many bytes."""
    yield Answer(Kind.SCHEMA, SCHEMA)
    at = wish.begin_offset
    while at < wish.end_offset:
        if wish.topic == "Dies" and at > wish.begin_offset:
            raise SystemExit(3)
        if wish.topic == "Refuses" and at > wish.begin_offset:
            yield Answer(Kind.REFUSAL, Refusal(ResponseCode.SYSTEM_ERROR, "is bad").to_bytes())
            break
        rows = min(wish.batch_rows_max, wish.end_offset - at)
        at += rows
        if wish.topic == "Nothing":
            yield Answer(Kind.PROGRESS, next_offset=at)
        else:
            data = at.to_bytes(8, "big") * (wish.batch_bytes_max // 8)
            yield Answer(Kind.BATCH, data, at, 0, rows)
    yield Answer(Kind.END, b"\xff\xff\xff\xff\0\0\0\0", at)


if __name__ == "__main__":
    main(lambda: answer)
