"""Shares that somebody has written down."""

import pytest

from ternmq_consumer.rebalance.allocation.configured_queues import AllocateByConfiguration
from ternmq_model.errors import ConfigError
from ternmq_model.queue import MessageQueue

QUEUES = [MessageQueue("t", "a", queue_id) for queue_id in range(4)]


def test_member_gets_its_named_existing_queues_whoever_is_present() -> None:
    allocate = AllocateByConfiguration([QUEUES[3], QUEUES[1], MessageQueue("other", "a", 0)])
    assert allocate(QUEUES, ["me"], "me") == [QUEUES[1], QUEUES[3]]
    assert allocate(QUEUES, ["he", "me"], "me") == [QUEUES[1], QUEUES[3]]
    assert allocate(QUEUES[:2], ["he", "me"], "me") == [QUEUES[1]]
    assert not AllocateByConfiguration([])(QUEUES, ["me"], "me")


def test_malformed_queue_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"consumer\.allocate\.queues='t': must be a Message"):
        AllocateByConfiguration("t")  # type: ignore[arg-type]
