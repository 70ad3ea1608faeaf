"""How far timed messages are delivered."""

import pytest

from ternmq_broker.state.timer_checkpoint import TimerCheckpoint, verify_timer_checksum


def test_checkpoint_file_has_rocketmqs_layout() -> None:
    kept = TimerCheckpoint(1, 0, 3, 4, 5, 6, 7)
    data = kept.encode()
    assert len(data) == 4096
    numbers = [int.from_bytes(data[at : at + 8], "big") for at in range(0, 56, 8)]
    assert numbers == [1, 0, 3, 4, 5, 6, 7]
    assert data[56:60] == b"crc:"
    assert not any(data[64:])
    assert TimerCheckpoint.decode(data) == kept
    assert (kept.begins_at, kept.known_end) == (3, 4)


def test_rocketmqs_timer_log_is_searched_from_start_of_queue() -> None:
    kept = TimerCheckpoint(read_ms=1, timer_log_position=52, first_offset=3, next_offset=4)
    assert (kept.begins_at, kept.known_end) == (0, 3)


@pytest.mark.parametrize("data", [b"", bytes(55), b"\xff" * 4096])
def test_malformed_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="timer checkpoint"):
        TimerCheckpoint.decode(data)


def test_flipped_bit_of_checkpoint_is_found_by_its_checksum() -> None:
    data = TimerCheckpoint(1, 0, 3, 4, 5, 6, 7).encode()
    assert verify_timer_checksum(data)
    for bit in range(56 * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="checksum"):
            verify_timer_checksum(bytes(damaged))


def test_checkpoint_of_rocketmq_has_no_checksum() -> None:
    data = TimerCheckpoint(1, 0, 3, 4, 5, 6, 7).encode()
    assert not verify_timer_checksum(data[:56] + bytes(4040))
    assert not verify_timer_checksum(data[:56])
