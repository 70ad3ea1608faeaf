import pytest

from ternmq_broker.admin.resets import OffsetReset, QueueState, is_cloned, reset
from ternmq_model.offsets import QueueOffset as At


def state(before: int | None, *, least: int = 10, end: int = 100) -> QueueState:
    return QueueState("T", 0, At(least), At(end), None if before is None else At(before))


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [(50, 20, 20), (50, 80, 80), (50, 50, 50), (50, 3, 10), (50, 900, 100), (None, 20, 20)],
)
def test_offset_is_reset_as_wanted_or_to_the_nearest_end(
    before: int | None, wanted: int, after: int
) -> None:
    (change,) = reset([(state(before), wanted)], backwards_only=False)
    assert change == OffsetReset("T", 0, None if before is None else At(before), At(after))


@pytest.mark.parametrize(
    ("before", "wanted", "is_left"),
    [(50, 20, False), (50, 50, True), (50, 80, True), (None, 20, True), (5, 3, True)],
)
def test_backwards_only_reset_leaves_queues_at_or_before_it(
    before: int | None, wanted: int, is_left: bool
) -> None:
    assert (reset([(state(before), wanted)], backwards_only=True) == []) == is_left


def test_groups_own_topics_are_cloned_only_by_name() -> None:
    assert is_cloned("T", "")
    assert not is_cloned("%RETRY%G", "")
    assert not is_cloned("%DLQ%G", "")
    assert is_cloned("%RETRY%G", "%RETRY%G")
    assert not is_cloned("T", "U")
