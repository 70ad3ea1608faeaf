"""The answers that a listener may give."""

from typing import Any

import pytest

from ternmq_consumer.consume_status import LATER, ConsumeStatus, ReconsumeLater, reconsume_later_of
from ternmq_model.errors import UsageError


@pytest.mark.parametrize(
    ("answer", "later"),
    [
        (None, None),
        (True, None),
        (ConsumeStatus.SUCCESS, None),
        (False, LATER),
        (ConsumeStatus.RECONSUME_LATER, LATER),
        (ConsumeStatus.DEAD_LETTER, ReconsumeLater(-1)),
        (ReconsumeLater(18, finished=3), ReconsumeLater(18, finished=3)),
    ],
)
def test_every_answer_has_one_meaning(answer: object, later: ReconsumeLater | None) -> None:
    assert reconsume_later_of(answer) == later


@pytest.mark.parametrize("answer", ["done", 0, 1, "RECONSUME_LATER", ConsumeStatus, []])
def test_other_answer_is_refused(answer: object) -> None:
    with pytest.raises(UsageError, match=r"must be None, True or ConsumeStatus.SUCCESS"):
        reconsume_later_of(answer)


@pytest.mark.parametrize(
    "wrong",
    [
        {"delay_level": -2},
        {"delay_level": 19},
        {"finished": -1},
        {"delay_level": 1.5},
        {"finished": 1.5},
        {"suspend_s": 0.001},
        {"suspend_s": 31.0},
    ],
)
def test_number_out_of_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(UsageError, match=name):
        ReconsumeLater(**wrong)
