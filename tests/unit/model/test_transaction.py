"""When a batch of staged messages counts as left behind."""

import pytest

from ternmq_model.transaction import is_in_use


@pytest.mark.parametrize(("quiet_ms", "is_so"), [(0, True), (59_999, True), (60_000, False)])
def test_batch_is_in_use_for_a_minute_after_the_last_work_on_it(quiet_ms: int, is_so: bool) -> None:
    assert is_in_use(quiet_ms) is is_so
