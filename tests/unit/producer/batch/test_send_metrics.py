"""Metrics of sent batches."""

from typing import Any

import pytest

from ternmq_producer.batch.send_metrics import SendMetrics


def test_failing_metrics_do_not_fail_the_answer_of_a_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken: Any = None
    SendMetrics(broken).answered(broken, [], b"")
    SendMetrics(broken).failed(broken, broken)
    assert len(caplog.records) == 2
