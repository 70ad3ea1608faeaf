"""How far timed messages are delivered."""

import pytest

from ternmq_broker.timer.checkpoint import TimerCheckpoint


def test_checkpoint_file_has_rocketmqs_layout() -> None:
    kept = TimerCheckpoint(1, 0, 3, 4, 5, 6, 7)
    data = kept.encode()
    assert len(data) == 4096
    numbers = [int.from_bytes(data[at : at + 8], "big") for at in range(0, 64, 8)]
    assert numbers == [1, 0, 3, 4, 5, 6, 7, 0]
    assert TimerCheckpoint.decode(data) == kept
    assert (kept.begins_at, kept.known_end) == (3, 4)


def test_rocketmqs_timer_log_is_searched_from_start_of_queue() -> None:
    kept = TimerCheckpoint(read_ms=1, timer_log_position=52, first_offset=3, next_offset=4)
    assert (kept.begins_at, kept.known_end) == (0, 3)


@pytest.mark.parametrize("data", [b"", bytes(55), b"\xff" * 4096])
def test_malformed_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="timer checkpoint"):
        TimerCheckpoint.decode(data)
