import pytest

from ternmq_model.errors import TernError
from ternmq_model.offsets import QueueOffset
from ternmq_pipeline.planning.data_loss import DataLossCheck, DataLost, QueueLoss, resume_offset
from tests.support.planning import A0, A1, snapshot


def test_error_lists_ten_queues_and_counts_the_others() -> None:
    losses = [QueueLoss(A0._replace(queue_id=number), "lost") for number in range(12)]
    error = DataLost(losses)
    assert isinstance(error, TernError)
    lines = str(error).splitlines()
    assert lines[0].endswith(": topic TopicA, broker broker-a, queue 0: lost")
    assert "queue 9: lost" in lines[9]
    assert "queue 10" not in str(error)
    assert "and 2 queues more" in str(error)
    assert len(error.losses) == 12


def test_losses_are_an_error_or_warnings() -> None:
    for fail in (True, False):
        losses = DataLossCheck(fail=fail)
        assert losses.warnings() == []
        losses.add(A0, "lost")
        if fail:
            with pytest.raises(DataLost):
                losses.warnings()
        else:
            assert losses.warnings() == ["topic TopicA, broker broker-a, queue 0: lost"]


@pytest.mark.parametrize(("wanted", "place"), [(4, 5), (5, 5), (9, 9), (10, 9)])
def test_reading_goes_on_at_the_nearest_existing_offset(wanted: int, place: int) -> None:
    now = snapshot({A0: (5, 9)})
    assert resume_offset(A0, QueueOffset(wanted), now, DataLossCheck(fail=False)) == place


def test_missing_queue_has_no_place_unless_its_broker_may_return() -> None:
    now = snapshot({A0: (5, 9)})
    assert resume_offset(A1, QueueOffset(1), now, DataLossCheck(fail=False)) is None
    now = snapshot({A0: (5, 9)}, brokers=["broker-b"])
    assert resume_offset(A1, QueueOffset(1), now, DataLossCheck(fail=False)) == 1
