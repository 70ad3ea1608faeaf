"""Metrics of sent batches."""

from typing import Any

from ternmq_producer.batch.send_metrics import SendMetrics


def test_failing_metrics_do_not_fail_the_answer_of_a_batch() -> None:
    broken: Any = None
    SendMetrics(broken).written(broken)
    SendMetrics(broken).answered(broken, [], b"")
    SendMetrics(broken).failed(broken, broken)
