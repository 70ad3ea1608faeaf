"""How late messages were."""

import numpy as np

from ternmq_broker.scheduled.delivery_delay import DeliveryDelay


def test_share_of_deliveries_is_within_the_reported_lateness() -> None:
    lateness = DeliveryDelay()
    assert lateness.at_most_ms(0.99) == 0
    lateness.add(np.array([0] * 50 + [3] * 40 + [100] * 9 + [1000]))
    assert lateness.count == 100
    assert lateness.at_most_ms(0.5) == 0
    assert lateness.at_most_ms(0.9) == 3
    assert lateness.at_most_ms(0.99) == 127
    assert lateness.at_most_ms(1) == lateness.worst_ms == 1000


def test_early_and_very_late_deliveries_are_counted() -> None:
    lateness = DeliveryDelay()
    lateness.add(np.array([-5, 1 << 50]))
    lateness.add(np.array([], dtype=np.int64))
    assert lateness.count == 2
    assert lateness.worst_ms == 1 << 50
