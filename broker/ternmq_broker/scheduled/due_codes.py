"""Due codes in the wheel timer's queue. Pure."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_model.arrays import Ints
from ternmq_model.delay import EARLIEST_CODE, TICK_MS, wheel_code
from ternmq_model.properties import (
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DUE_MS,
    decode_properties,
)
from ternmq_model.record.format import Record

_GONE: Final = 0
_LATEST: Final = 1 << 57


def is_time(codes: Ints) -> NDArray[np.bool_]:
    """Return which codes of a queue are due codes; the others are tag codes."""
    found: NDArray[np.bool_] = (codes >= EARLIEST_CODE) & (codes < _LATEST)
    return found


def codes_of_records(records: Sequence[Record | None]) -> Ints:
    """Return the due codes that belong to records.

    A record without a time is due at once; a missing record has a code that never waits.
    """
    return np.array([_code_of(record) for record in records], dtype=np.int64)


def _code_of(record: Record | None) -> int:
    if record is None:
        return _GONE
    code = wheel_code(decode_properties(record.properties), record.header.stored_at_ms)
    return EARLIEST_CODE if code is None else code


def not_delivered(offsets: Ints, codes: Ints, known: TimerCheckpoint) -> NDArray[np.bool_]:
    """Return which messages wait, according to a checkpoint.

    Args:
        offsets: Offsets in the wheel timer's queue.
        codes: Due codes of the messages.
        known: Checkpoint of earlier deliveries.
    """
    is_late = codes // TICK_MS * TICK_MS > known.read_ms
    waits: NDArray[np.bool_] = (codes != _GONE) & ((offsets >= known.known_end) | is_late)
    return waits


def asked_for_ms(record: Record) -> int:
    """Return the delivery time that a message asks for; its store time without one."""
    properties = decode_properties(record.properties)
    is_after = TIMER_DELAY_SEC in properties or TIMER_DELAY_MS in properties
    text = properties.get(TIMER_DUE_MS if is_after else TIMER_DELIVER_MS, "")
    return int(text) if text.isascii() and text.isdigit() else record.header.stored_at_ms
