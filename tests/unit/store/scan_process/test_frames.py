"""Frames come out as they went in, however they were cut on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.response_code import ResponseCode
from ternmq_store.scan_process.frames import (
    FrameHeader,
    FrameKind,
    FrameReader,
    ScanRefusal,
    ScanRequest,
    frame_bytes,
    header_bytes,
)

REQUEST = ScanRequest(
    root="/data/ü",
    broker_name="broker-a",
    topic="T",
    queue_id=3,
    begin_offset=5,
    end_offset=9,
    log_end=1 << 40,
    expression_type="SQL92",
    expression="a = 'ö'",
    stored_from_ms=1,
    stored_before_ms=2,
    keys=("k1", "k2"),
    columns=("body",),
    batch_rows_max=10,
    batch_bytes_max=20,
    skips_damaged=True,
    may_map=False,
)

frames = st.lists(
    st.tuples(
        st.sampled_from(FrameKind),
        st.integers(0, 1 << 62),
        st.integers(-1, 1 << 62),
        st.integers(0, 9),
        st.binary(max_size=200),
    )
)


@given(frames, st.lists(st.integers(1, 90), min_size=1))
def test_frames_are_reassembled_however_they_are_cut(
    sent: list[tuple[FrameKind, int, int, int, bytes]], cuts: list[int]
) -> None:
    data = b""
    for kind, request_id, next_offset, rows, payload in sent:
        header = FrameHeader(kind, request_id, len(payload), next_offset, 2, rows)
        data += header_bytes(header) + payload
    reader = FrameReader()
    received: list[tuple[FrameKind, int, int, int, bytes]] = []
    payload = b""
    turn = 0
    while data:
        piece, data = data[: cuts[turn % len(cuts)]], data[cuts[turn % len(cuts)] :]
        turn += 1
        for header, part, is_last in reader.feed(piece):
            payload += part
            if is_last:
                assert (header.payload_bytes, header.damaged) == (len(payload), 2)
                received.append(
                    (header.kind, header.request_id, header.next_offset, header.rows, payload)
                )
                payload = b""
    assert received == sent


def test_piece_within_one_payload_is_not_copied() -> None:
    reader = FrameReader()
    assert list(reader.feed(header_bytes(FrameHeader(FrameKind.BATCH, 1, 100)))) == []
    piece = bytes(60)
    (part,) = reader.feed(piece)
    assert part.data is piece
    assert not part.is_last


def test_malformed_frame_is_detected() -> None:
    with pytest.raises(ValueError, match="99"):
        list(FrameReader().feed(bytes([99]) + bytes(100)))


def test_scan_requests_and_refusals_survive_the_round_trip() -> None:
    assert ScanRequest.from_bytes(REQUEST.to_bytes()) == REQUEST
    refusal = ScanRefusal(ResponseCode.PULL_OFFSET_MOVED, "ä is gone")
    assert ScanRefusal.from_bytes(refusal.to_bytes()) == refusal
    ((header, data, is_last),) = FrameReader().feed(frame_bytes(FrameKind.STOP, 7))
    assert (header.kind, header.request_id, data, is_last) == (FrameKind.STOP, 7, b"", True)
