"""Answers of messages that were sent one by one and travel as one."""

import numpy as np

from ternmq_model.errors import ConnectionLost
from ternmq_producer.batch.result_sinks import SinkList
from tests.unit.producer.batch.test_batcher import Waiter


def test_every_waiting_sink_gets_its_own_copy_of_an_error() -> None:
    waiters = [Waiter(), Waiter(), Waiter()]
    earlier = ConnectionLost("earlier")
    waiters[1].set_exception(earlier)
    sinks = SinkList(waiters)
    assert not sinks.done()
    error = ConnectionLost("lost")
    sinks.set_exception(error)
    assert sinks.done()
    assert waiters[1].answers == [earlier]
    (first,), (last,) = waiters[0].answers, waiters[2].answers
    assert isinstance(first, ConnectionLost)
    assert first is not last
    assert str(first) == str(last) == "lost"
    assert first.may_have_happened is error.may_have_happened


def test_sinks_are_taken_by_indices_and_slices() -> None:
    waiters = [Waiter(), Waiter(), Waiter()]
    sinks = SinkList(waiters)
    assert sinks.take(np.array([2, 0])).slots() == [waiters[2], waiters[0]]
    assert sinks.take(slice(1, 3)).slots() == waiters[1:]
