"""How late messages were."""

import numpy as np

from ternmq_broker.delay.lateness import Lateness


def test_a_share_of_the_deliveries_was_no_later_than_it_says() -> None:
    lateness = Lateness()
    assert lateness.at_most_ms(0.99) == 0
    lateness.add(np.array([0] * 50 + [3] * 40 + [100] * 9 + [1000]))
    assert lateness.count == 100
    assert lateness.at_most_ms(0.5) == 0
    assert lateness.at_most_ms(0.9) == 3
    assert lateness.at_most_ms(0.99) == 127
    assert lateness.at_most_ms(1) == lateness.worst_ms == 1000


def test_what_came_before_its_time_or_very_late_is_counted_too() -> None:
    lateness = Lateness()
    lateness.add(np.array([-5, 1 << 50]))
    lateness.add(np.array([], dtype=np.int64))
    assert lateness.count == 2
    assert lateness.worst_ms == 1 << 50
