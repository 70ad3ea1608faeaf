"""Builders of records and batches for tests."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ternmq_model.record.batch import RecordBatch, check_records
from ternmq_model.record.format import encode_record

BORN_HOST = bytes((127, 0, 0, 1)) + (40_000).to_bytes(4, "big")
STORE_HOST = bytes((127, 0, 0, 1)) + (10_911).to_bytes(4, "big")


def record(
    topic: str = "flights",
    queue_id: int = 0,
    body: bytes = b"body",
    properties: dict[str, str] | None = None,
    *,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
    born_host: bytes = BORN_HOST,
    store_host: bytes = STORE_HOST,
    suffix: bytes = b"",
) -> bytes:
    """Return a record as a producer would build it; `suffix` ends its properties."""
    pairs = {"UNIQ_KEY": "0" * 32} if properties is None else properties
    return encode_record(
        topic=topic.encode(),
        queue_id=queue_id,
        body=body,
        properties="".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()
        + suffix,
        born_at_ms=1_700_000_000_000,
        born_host=born_host,
        store_host=store_host,
        sys_flag=sys_flag,
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
    )


def sizes_of(records: Sequence[bytes]) -> NDArray[np.int32]:
    """Return the lengths as a request carries them."""
    return np.fromiter(map(len, records), dtype="<i4", count=len(records))


def batch_of(*records: bytes, host_bytes: int = 8, is_checksummed: bool = False) -> RecordBatch:
    """Return a checked batch of good records."""
    checked = check_records(
        b"".join(records),
        sizes_of(records),
        born_host_bytes=host_bytes,
        store_host_bytes=host_bytes,
        is_checksummed=is_checksummed,
    )
    assert checked.batch is not None, checked.refused
    assert not checked.refused, checked.refused
    return checked.batch
