"""Replacement of some rows of a batch by other records. Pure."""

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.fields import queues_of


def replace_rows(batch: RecordBatch, rows: Ints, others: RecordBatch) -> RecordBatch:
    """Return `batch` with the records of `others` in place of `rows`, in the same order.

    Args:
        batch: Batch with hosts of one length.
        rows: Ascending row numbers, one for each record of `others`.
        others: Batch with the host length and the kind of checksums of `batch`.
    """
    assert batch.headers.dtype == others.headers.dtype, "the hosts have other lengths"
    assert batch.is_checksummed is others.is_checksummed, "some have checksums, some have none"
    assert len(rows) == len(others), "not one record for each row"
    sizes, headers, tag_codes = batch.sizes.copy(), batch.headers.copy(), batch.tag_codes.copy()
    tails = batch.properties - batch.starts
    sizes[rows], headers[rows], tag_codes[rows] = others.sizes, others.headers, others.tag_codes
    tails[rows] = others.properties - others.starts
    starts = np.cumsum(sizes) - sizes
    names: dict[str, int] = {}
    topic_of, queue_ids = np.zeros((2, len(batch)), dtype=np.int64)
    for source, places in ((batch, None), (others, rows)):
        for topic, queue_id, own in source.queues:
            at = own if places is None else places[own]
            topic_of[at] = names.setdefault(topic, len(names))
            queue_ids[at] = queue_id
    return RecordBatch(
        _join(batch, rows, others),
        starts,
        sizes,
        headers,
        tag_codes,
        queues_of(tuple(names), topic_of, queue_ids),
        starts + tails,
        batch.is_checksummed,
    )


def _join(batch: RecordBatch, rows: Ints, others: RecordBatch) -> bytes:
    pieces: list[bytes] = []
    at = 0
    ends = others.starts + others.sizes
    for row, begin, end in zip(rows.tolist(), others.starts.tolist(), ends.tolist(), strict=True):
        start = int(batch.starts[row])
        pieces += (batch.data[at:start], others.data[begin:end])
        at = start + int(batch.sizes[row])
    pieces.append(batch.data[at:])
    return b"".join(pieces)
