from ternmq_pipeline.jobs.driver.streaming_query import RunTotals
from ternmq_pipeline.jobs.resend import LEFT, ROWS, ResendResult, dry_run_result, resend_result


def test_rows_without_a_topic_are_not_counted_as_sent() -> None:
    totals = RunTotals(batches=3)
    totals.observed = {ROWS: 10, LEFT: 4}
    totals.is_stopped = True
    assert resend_result(totals, 1.5) == ResendResult(6, 4, 3, {}, 1.5, is_stopped=True)
    assert resend_result(RunTotals(), 0.1) == ResendResult(0, 0, 0, {}, 0.1, is_stopped=False)


def test_dry_run_counts_the_messages_of_each_topic() -> None:
    would = dry_run_result({"B": 2, None: 7, "A": 1}, 0.5)
    assert would == ResendResult(3, 7, 0, {"A": 1, "B": 2}, 0.5, is_stopped=False)
    assert list(would.topics) == ["A", "B"]
