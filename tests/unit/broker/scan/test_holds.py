"""What scans need stays, for a time."""

from ternmq_broker.scan.holds import ScanHolds
from ternmq_model.offsets import PhysicalOffset


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        raise AssertionError("nobody asks for it")


def test_lowest_place_scans_need_is_held_until_they_stall_too_long() -> None:
    clock = Clock()
    holds = ScanHolds(clock, limit_ms=60)
    assert holds.needed_from() is None
    with holds.hold(PhysicalOffset(500)) as first, holds.hold(PhysicalOffset(700)) as second:
        assert holds.needed_from() == 500
        clock.now_ms += 40
        holds.moved(second, PhysicalOffset(800))
        clock.now_ms += 19
        assert holds.needed_from() == 500
        clock.now_ms += 1
        assert holds.needed_from() == 800
        holds.moved(first, None)
        assert holds.needed_from() == 500
        holds.moved(first, PhysicalOffset(900))
        assert holds.needed_from() == 800
        clock.now_ms += 60
        assert holds.needed_from() is None
        holds.extend(first)
        clock.now_ms += 1_000_000
        assert holds.needed_from() == 900
        holds.moved(first, None)
        clock.now_ms += 60
        assert holds.needed_from() is None
    assert holds.needed_from() is None
