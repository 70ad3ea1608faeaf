"""When a batch of staged messages counts as left behind, and which states there are."""

import pytest

from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import check_not_in_use, check_states, is_in_use


@pytest.mark.parametrize(("quiet_ms", "is_so"), [(0, True), (179_999, True), (180_000, False)])
def test_batch_is_in_use_for_three_minutes_after_work_on_it(quiet_ms: int, is_so: bool) -> None:
    assert is_in_use(quiet_ms) is is_so


def test_batch_in_use_is_named_and_left_alone() -> None:
    check_not_in_use("q/1", 180_000)
    with pytest.raises(RefusedError, match=r"q/2 may be in use: 59 s ago") as refused:
        check_not_in_use("q/2", 59_000)
    assert refused.value.code == ResponseCode.ILLEGAL_OPERATION


def test_state_of_another_version_is_refused() -> None:
    check_states([0, 1, 2, 3], "a")
    with pytest.raises(RefusedError, match="transaction state 4 is unknown here") as refused:
        check_states([1, 4, 5], "a")
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
