"""The process that scans, between two pipes."""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ternmq_store.scan_process.child import Pipes, serve
from ternmq_store.scan_process.frames import Answer, FrameReader, Header, Kind, Wish, frame_bytes
from tests.unit.store.scan_process.test_frames import WISH


class Place:
    """Both ends of both pipes."""

    def __init__(self) -> None:
        self.input, self.wishes = os.pipe()
        self.answers, self.output = os.pipe()
        self.pipes = Pipes(self.input, self.output)

    def ask(self, kind: Kind, stretch: int, payload: bytes = b"") -> None:
        os.write(self.wishes, frame_bytes(kind, stretch, payload))

    def heard(self) -> list[tuple[Header, bytes]]:
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
    for fd in (made.input, made.wishes, made.answers, made.output):
        try:
            os.close(fd)
        except OSError:
            continue


def count_up(wish: Wish) -> Iterator[Answer]:
    yield Answer(Kind.SCHEMA, b"schema")
    for offset in range(wish.begin_offset, wish.end_offset):
        yield Answer(Kind.BATCH, memoryview(b"batch"), offset + 1, 0, 1)
    yield Answer(Kind.END, b"end", wish.end_offset)


def test_scan_requests_are_answered_in_turn_until_the_broker_is_gone(place: Place) -> None:
    place.ask(Kind.WISH, 1, WISH.to_bytes())
    place.ask(Kind.WISH, 2, replace(WISH, begin_offset=8).to_bytes())
    os.close(place.wishes)
    # Its input has ended after the second wish: the look for a stop finds that, in mid-stretch.
    serve(place.pipes, count_up)
    heard = place.heard()
    assert [header.stretch for header, _ in heard] == [1]
    assert heard[0][1] == b"schema"


def test_unwanted_stretch_ends_at_once_and_the_next_is_served(
    place: Place,
) -> None:
    turns: list[int] = []

    def stop_in_the_middle(wish: Wish) -> Iterator[Answer]:
        for answer in count_up(wish):
            turns.append(answer.next_offset)
            if answer.next_offset == 7 and wish.begin_offset == 5:
                place.ask(Kind.STOP, 1)
                place.ask(Kind.WISH, 2, replace(WISH, begin_offset=8).to_bytes())
            if answer.kind is Kind.END:
                os.close(place.wishes)
            yield answer

    place.ask(Kind.WISH, 1, WISH.to_bytes())
    serve(place.pipes, stop_in_the_middle)
    heard = [(header.stretch, header.kind) for header, _ in place.heard()]
    batch, end = Kind.BATCH, Kind.END
    assert heard == [
        *((1, Kind.SCHEMA), (1, batch), (1, batch), (1, end)),
        *((2, Kind.SCHEMA), (2, batch), (2, end)),
    ]
    assert turns == [0, 6, 7, 0, 9, 9]


def test_late_stop_harms_no_later_stretch(place: Place) -> None:
    place.ask(Kind.WISH, 1, replace(WISH, begin_offset=8).to_bytes())
    place.ask(Kind.STOP, 0)

    def answers(wish: Wish) -> Iterator[Answer]:
        for answer in count_up(wish):
            if answer.kind is Kind.END:
                os.close(place.wishes)
            yield answer

    serve(place.pipes, answers)
    assert [header.kind for header, _ in place.heard()] == [Kind.SCHEMA, Kind.BATCH, Kind.END]


def test_scan_process_ends_when_its_output_is_closed(place: Place) -> None:
    place.ask(Kind.WISH, 1, WISH.to_bytes())
    os.close(place.answers)
    serve(place.pipes, count_up)
