import os
import signal

import pytest

from ternmq_pipeline.jobs.progress import BatchProgress
from ternmq_pipeline.jobs.running import Totals, interruptions


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_signal_is_noted_and_a_second_one_ends_the_job(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with interruptions() as noted:
        assert [noted.is_wanted] == [False]
        os.kill(os.getpid(), number)
        assert noted.is_wanted
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_totals_add_up_and_count_what_was_read_where_nothing_is_told() -> None:
    totals = Totals()
    totals.add(BatchProgress(0, 10, None, 1.0, None, {"left": 1}))
    totals.add(BatchProgress(1, 5, 3, 1.0, None, {"left": 2}))
    assert (totals.batches, totals.rows_in) == (2, 15)
    assert totals.observed == {"left": 3}
