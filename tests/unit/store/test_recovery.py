"""What recovery decides."""

import numpy as np

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.recovery import FirstRecord, good_units, scan_start


def test_the_scan_begins_with_the_last_file_that_was_safe_when_it_began() -> None:
    files = [FirstRecord(PhysicalOffset(base), at) for base, at in ((0, 10), (100, 20), (200, 30))]
    assert scan_start(files, 30) == 200
    assert scan_start(files, 29) == 100
    assert scan_start(files, 9) == 0
    assert scan_start([*files, FirstRecord(PhysicalOffset(300), 0)], 40) == 200


def test_units_count_until_the_first_that_is_not_written_or_too_late() -> None:
    offsets = np.array([0, 50, 90, 0, 95], dtype=np.int64)
    sizes = np.array([50, 40, 5, 0, 9], dtype=np.int64)
    assert good_units(offsets, sizes, PhysicalOffset(1000)) == 3
    assert good_units(offsets, sizes, PhysicalOffset(90)) == 2
    assert good_units(offsets[:2], sizes[:2], PhysicalOffset(90)) == 2
