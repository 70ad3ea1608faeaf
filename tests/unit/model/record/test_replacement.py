"""Other records in the place of some."""

from random import Random

import numpy as np
import pytest

from ternmq_model.record.replacement import replace_rows
from tests.support.records import batch_of, record


@pytest.mark.parametrize("seed", range(20))
def test_batch_with_rows_replaced_equals_the_batch_of_those_records(seed: int) -> None:
    chance = Random(seed)

    def some() -> bytes:
        return record(
            chance.choice("ABC"),
            chance.randrange(3),
            bytes(chance.randrange(30)),
            {"TAGS": chance.choice("xyz")},
        )

    records = [some() for _ in range(chance.randrange(1, 20))]
    rows = sorted(chance.sample(range(len(records)), chance.randrange(1, len(records) + 1)))
    others = [some() for _ in rows]
    done = replace_rows(batch_of(*records), np.array(rows, dtype=np.int64), batch_of(*others))
    for row, other in zip(rows, others, strict=True):
        records[row] = other
    wanted = batch_of(*records)
    assert done.data == wanted.data
    assert done.headers.tolist() == wanted.headers.tolist()
    for name in ("starts", "sizes", "tag_codes", "properties"):
        assert getattr(done, name).tolist() == getattr(wanted, name).tolist()
    assert sorted((q.topic, q.queue_id, q.rows.tolist()) for q in done.queues) == sorted(
        (q.topic, q.queue_id, q.rows.tolist()) for q in wanted.queues
    )
