import numpy as np

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.queues.units import good_units


def test_units_count_until_the_first_unwritten_or_late_one() -> None:
    offsets = np.array([0, 50, 90, 0, 95], dtype=np.int64)
    sizes = np.array([50, 40, 5, 0, 9], dtype=np.int64)
    assert good_units(offsets, sizes, PhysicalOffset(1000)) == 3
    assert good_units(offsets, sizes, PhysicalOffset(90)) == 2
    assert good_units(offsets[:2], sizes[:2], PhysicalOffset(90)) == 2
