import pytest

from ternmq_model.epochs import EPOCH_MAX, EPOCH_STEP_MAX, EPOCH_STORED_MAX, doubt_of


@pytest.mark.parametrize("known", [0, 7, 1_001_000, EPOCH_MAX - EPOCH_STEP_MAX])
def test_number_is_believed_up_to_a_step_above_the_highest_known(known: int) -> None:
    assert not doubt_of(known + EPOCH_STEP_MAX, known)
    assert not doubt_of(0, known)
    assert "repair-epoch" in doubt_of(known + EPOCH_STEP_MAX + 1, known)


@pytest.mark.parametrize("number", [EPOCH_MAX + 1, 1 << 62, EPOCH_STORED_MAX])
def test_number_without_room_above_it_is_never_believed(number: int) -> None:
    assert f"is above {EPOCH_MAX}" in doubt_of(number, EPOCH_STORED_MAX)
    assert not doubt_of(EPOCH_MAX, EPOCH_MAX)
