"""The process that scans, between two pipes."""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ternmq_store.scan_process.child import Pipes, serve
from ternmq_store.scan_process.frames import (
    FrameHeader,
    FrameKind,
    FrameReader,
    ScanAnswer,
    ScanRequest,
    frame_bytes,
)
from tests.unit.store.scan_process.test_frames import REQUEST


class Place:
    """Both ends of both pipes."""

    def __init__(self) -> None:
        self.input, self.requests = os.pipe()
        self.answers, self.output = os.pipe()
        self.pipes = Pipes(self.input, self.output)

    def ask(self, kind: FrameKind, request_id: int, payload: bytes = b"") -> None:
        os.write(self.requests, frame_bytes(kind, request_id, payload))

    def heard(self) -> list[tuple[FrameHeader, bytes]]:
        os.close(self.output)
        data = b""
        while piece := os.read(self.answers, 1 << 20):
            data += piece
        parts = list(FrameReader().feed(data))
        return [(part.header, part.data) for part in parts]


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    for fd in (made.input, made.requests, made.answers, made.output):
        try:
            os.close(fd)
        except OSError:
            continue


def count_up(request: ScanRequest) -> Iterator[ScanAnswer]:
    yield ScanAnswer(FrameKind.SCHEMA, b"schema")
    for offset in range(request.begin_offset, request.end_offset):
        yield ScanAnswer(FrameKind.BATCH, memoryview(b"batch"), offset + 1, 0, 1)
    yield ScanAnswer(FrameKind.END, b"end", request.end_offset)


def test_scan_requests_are_answered_in_turn_until_the_broker_is_gone(place: Place) -> None:
    place.ask(FrameKind.REQUEST, 1, REQUEST.to_bytes())
    place.ask(FrameKind.REQUEST, 2, replace(REQUEST, begin_offset=8).to_bytes())
    os.close(place.requests)
    # Its input has ended after the second request: the look for a stop finds that, in mid-range.
    serve(place.pipes, count_up)
    heard = place.heard()
    assert [header.request_id for header, _ in heard] == [1]
    assert heard[0][1] == b"schema"


def test_unwanted_range_ends_at_once_and_the_next_is_served(
    place: Place,
) -> None:
    turns: list[int] = []

    def stop_in_the_middle(request: ScanRequest) -> Iterator[ScanAnswer]:
        for answer in count_up(request):
            turns.append(answer.next_offset)
            if answer.next_offset == 7 and request.begin_offset == 5:
                place.ask(FrameKind.STOP, 1)
                place.ask(FrameKind.REQUEST, 2, replace(REQUEST, begin_offset=8).to_bytes())
            if answer.kind is FrameKind.END:
                os.close(place.requests)
            yield answer

    place.ask(FrameKind.REQUEST, 1, REQUEST.to_bytes())
    serve(place.pipes, stop_in_the_middle)
    heard = [(header.request_id, header.kind) for header, _ in place.heard()]
    batch, end = FrameKind.BATCH, FrameKind.END
    assert heard == [
        *((1, FrameKind.SCHEMA), (1, batch), (1, batch), (1, end)),
        *((2, FrameKind.SCHEMA), (2, batch), (2, end)),
    ]
    assert turns == [0, 6, 7, 0, 9, 9]


def test_late_stop_harms_no_later_range(place: Place) -> None:
    place.ask(FrameKind.REQUEST, 1, replace(REQUEST, begin_offset=8).to_bytes())
    place.ask(FrameKind.STOP, 0)

    def answers(request: ScanRequest) -> Iterator[ScanAnswer]:
        for answer in count_up(request):
            if answer.kind is FrameKind.END:
                os.close(place.requests)
            yield answer

    serve(place.pipes, answers)
    assert [header.kind for header, _ in place.heard()] == [
        FrameKind.SCHEMA,
        FrameKind.BATCH,
        FrameKind.END,
    ]


def test_scan_process_ends_when_its_output_is_closed(place: Place) -> None:
    place.ask(FrameKind.REQUEST, 1, REQUEST.to_bytes())
    os.close(place.answers)
    serve(place.pipes, count_up)
