"""Row filter of a scan, for rows that are Arrow batches already."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ternmq_model.columns import column_names
from ternmq_model.columns.arrow import arrow, compute
from ternmq_store.scan.scan_spec import ScanSpec

if TYPE_CHECKING:
    import pyarrow as pa


def matching_rows(batch: "pa.RecordBatch", spec: ScanSpec) -> "pa.RecordBatch":
    """Return the rows that match the tags, keys and store times of `spec`, with its columns.

    Args:
        batch: Rows with at least `spec.columns_needed`.
        spec: Filter of the scan; its condition on properties is not tested.
    """
    found: Any = batch
    if spec.tags:
        found = found.filter(
            compute.is_in(found[column_names.TAGS], arrow.array(sorted(spec.tags)))
        )
    if spec.stored_from_ms or spec.stored_before_ms:
        at_us = found[column_names.STORED_AT].view(arrow.int64()).to_numpy()
        good = at_us >= spec.stored_from_ms * 1000
        if spec.stored_before_ms:
            good &= at_us < spec.stored_before_ms * 1000
        if not good.all():
            found = found.filter(arrow.array(good))
    if spec.keys:
        keys = found[column_names.KEYS]
        hit = compute.is_in(keys.flatten(), arrow.array(sorted(spec.keys))).to_numpy(
            zero_copy_only=False
        )
        rows = np.unique(compute.list_parent_indices(keys).to_numpy()[hit])
        found = found.take(arrow.array(rows))
    if len(found.schema) != len(spec.columns):
        found = found.select(list(spec.columns))
    kept: pa.RecordBatch = found
    return kept
