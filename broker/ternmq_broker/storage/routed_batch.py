"""Batches whose delayed, timed and half messages are routed to system topics. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ternmq_broker.storage.internal_record import (
    InternalRecord,
    encode_internal,
    encoded_batch,
    internal_record_of,
)
from ternmq_broker.storage.staged_batch import stage_rows
from ternmq_broker.storage.system_topic_routing import SPARE_BYTES, RoutingRules, route
from ternmq_model.arrays import Ints
from ternmq_model.delay import level_delay_ms
from ternmq_model.errors import RefusedError, UsageError
from ternmq_model.names import HALF_TOPIC, SCHEDULE_TOPIC, WHEEL_TOPIC
from ternmq_model.properties import (
    CHECK_IMMUNITY_S,
    REAL_TOPIC,
    SOURCE,
    STAGED_FOR,
    TIMER_DUE_MS,
)
from ternmq_model.record.batch import RecordBatch, RefusedRecord, select_rows
from ternmq_model.record.format import decode_record
from ternmq_model.record.replacement import replace_rows
from ternmq_model.response_code import ResponseCode

NOT_STAGED: Final = -2
STAGED_OWN: Final = -1
"""Staged for the time in the settings of the broker."""


class RoutedBatch(NamedTuple):
    """A batch after routing, without the refused rows."""

    batch: RecordBatch | None
    """Records to be stored, in order; None = none."""
    rows: Ints
    """The row of the old batch for each record."""
    refused: Sequence[RefusedRecord]
    staged_ms: Ints
    """Staging time of each row of the new batch; or `STAGED_OWN`, or `NOT_STAGED`."""
    delays: Sequence[tuple[str, int]] = ()
    """Topic and delay, ms, of each record that waits for its time."""


def reroute(batch: RecordBatch, rules: RoutingRules, *, store_host: bytes) -> RoutedBatch:
    """Return `batch` with its `routed` rows in the form in which they are stored.

    Args:
        batch: Checked batch.
        rules: Current routing rules of this broker.
        store_host: Store host of rewritten records.
    """
    if (staged := stage_rows(batch, rules)) is not None:
        immunity_s, rows = staged.immunity_s, np.arange(len(batch), dtype=np.int64)
        lasts_ms = STAGED_OWN if immunity_s is None else immunity_s * 1000
        return RoutedBatch(staged.batch, rows, [], np.full_like(rows, lasts_ms))
    refused: list[RefusedRecord] = []
    forms: dict[int, tuple[InternalRecord, bytes]] = {}
    for row in batch.routed:
        try:
            form = _form(batch, row, rules)
            if form is not None:
                # The stored form is longer and may not fit. Waiting records may grow further.
                encoded = encode_internal(
                    form,
                    store_host=store_host,
                    is_checksummed=batch.is_checksummed,
                    spare_bytes=SPARE_BYTES.get(form.topic, 0),
                )
                forms[row] = form, encoded
        except RefusedError as error:
            refused.append(RefusedRecord(row, error.code, error.remark))
        except UsageError as error:
            refused.append(RefusedRecord(row, ResponseCode.MESSAGE_ILLEGAL, str(error)))
    if forms:
        others = encoded_batch(
            list(forms.values()), len(store_host), is_checksummed=batch.is_checksummed
        )
        batch = replace_rows(batch, np.array(list(forms), dtype=np.int64), others)
    staged_ms = np.full(len(batch), NOT_STAGED, dtype=np.int64)
    delays = [
        (form.properties[REAL_TOPIC], delay_ms)
        for form, _ in forms.values()
        if (delay_ms := _delay_ms(form, rules)) is not None
    ]
    for row, (form, _) in forms.items():
        if form.topic == HALF_TOPIC and STAGED_FOR in form.properties:
            immunity = form.properties.get(CHECK_IMMUNITY_S)
            staged_ms[row] = STAGED_OWN if immunity is None else int(immunity) * 1000
    if refused:
        return _without(batch, refused, staged_ms)._replace(delays=delays)
    return RoutedBatch(batch, np.arange(len(batch), dtype=np.int64), refused, staged_ms, delays)


def _delay_ms(form: InternalRecord, rules: RoutingRules) -> int | None:
    """Return the time that a routed record waits; None when it does not wait for a time."""
    if form.topic == SCHEDULE_TOPIC:
        return level_delay_ms(form.queue_id + 1)
    if form.topic == WHEEL_TOPIC:
        return int(form.properties[TIMER_DUE_MS]) - rules.now_ms
    return None


def _without(batch: RecordBatch, refused: Sequence[RefusedRecord], staged_ms: Ints) -> RoutedBatch:
    good = np.ones(len(batch), dtype=bool)
    good[[each.row for each in refused]] = False
    queues = [queue._replace(rows=queue.rows[good[queue.rows]]) for queue in batch.queues]
    kept = [queue for queue in queues if len(queue.rows)]
    if not kept:
        nothing = np.zeros(0, dtype=np.int64)
        return RoutedBatch(None, nothing, refused, nothing)
    chosen, rows = select_rows(batch, kept)
    return RoutedBatch(chosen, rows, refused, staged_ms[rows])


def _form(batch: RecordBatch, row: int, rules: RoutingRules) -> InternalRecord | None:
    """Return what is to be stored of a row, None when it stays as it is.

    Raises:
        RefusedError: A property cannot be followed.
    """
    record = decode_record(batch.data, int(batch.starts[row]), check_crc=False)
    assert record is not None, "a checked record is one"
    inner = internal_record_of(record)
    form = route(inner, rules)
    return None if form is inner and SOURCE.encode() not in record.properties else form
