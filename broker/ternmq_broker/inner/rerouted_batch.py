"""A batch that clients sent, with those of its records rewritten that lie elsewhere first. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ternmq_broker.inner.inner_record import InnerRecord, batches_of, encode_inner, inner_record_of
from ternmq_broker.inner.rerouting import SPARE_BYTES, Rules, route
from ternmq_model.errors import RefusedError, UsageError
from ternmq_model.record import decode_record
from ternmq_model.record_batch import RecordBatch, select_rows
from ternmq_model.record_heads import Ints
from ternmq_model.record_rewrite import replace_rows
from ternmq_model.response_code import ResponseCode


class Why(NamedTuple):
    """Why a row cannot be stored."""

    code: int
    remark: str


class Rerouted(NamedTuple):
    """What became of a batch."""

    batch: RecordBatch | None
    """What is to be stored, in order; None = nothing."""
    rows: Ints
    """Which row of the old batch each one is."""
    refused: Mapping[int, Why]


def reroute(batch: RecordBatch, rules: Rules, *, store_host: bytes) -> Rerouted:
    """Return `batch` with its `routed` rows in the form in which they are stored.

    Args:
        batch: Checked.
        rules: Of this broker at this moment.
        store_host: For the rewritten records.
    """
    refused: dict[int, Why] = {}
    forms: dict[int, InnerRecord] = {}
    for row in batch.routed:
        try:
            form = _form(batch, row, rules)
            if form is not None:
                # Longer than it came: it may no longer fit. What waits may grow further.
                encode_inner(
                    form,
                    store_host=store_host,
                    is_checksummed=batch.is_checksummed,
                    spare_bytes=SPARE_BYTES.get(form.topic, 0),
                )
                forms[row] = form
        except RefusedError as error:
            refused[row] = Why(error.code, error.remark)
        except UsageError as error:
            refused[row] = Why(ResponseCode.MESSAGE_ILLEGAL, str(error))
    if forms:
        (others,) = batches_of(
            list(forms.values()), store_host=store_host, is_checksummed=batch.is_checksummed
        )
        batch = replace_rows(batch, np.array(list(forms), dtype=np.int64), others)
    if refused:
        return _without(batch, refused)
    return Rerouted(batch, np.arange(len(batch), dtype=np.int64), refused)


def _without(batch: RecordBatch, refused: Mapping[int, Why]) -> Rerouted:
    good = np.ones(len(batch), dtype=bool)
    good[list(refused)] = False
    queues = [queue._replace(rows=queue.rows[good[queue.rows]]) for queue in batch.queues]
    kept = [queue for queue in queues if len(queue.rows)]
    if not kept:
        return Rerouted(None, np.zeros(0, dtype=np.int64), refused)
    chosen, rows = select_rows(batch, kept)
    return Rerouted(chosen, rows, refused)


def _form(batch: RecordBatch, row: int, rules: Rules) -> InnerRecord | None:
    """Return what is to be stored of a row, None when it stays as it is.

    Raises:
        RefusedError: A property cannot be followed.
    """
    record = decode_record(batch.data, int(batch.starts[row]), check_crc=False)
    assert record is not None, "a checked record is one"
    inner = inner_record_of(record)
    form = route(inner, rules)
    return None if form is inner else form
