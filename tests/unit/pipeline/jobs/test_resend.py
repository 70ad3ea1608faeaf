from ternmq_pipeline.jobs.driver.streaming_query import Totals
from ternmq_pipeline.jobs.resend import LEFT, ROWS, Sent, planned, sent


def test_rows_without_a_topic_are_not_counted_as_sent() -> None:
    totals = Totals(batches=3)
    totals.observed = {ROWS: 10, LEFT: 4}
    totals.is_stopped = True
    assert sent(totals, 1.5) == Sent(6, 4, 3, {}, 1.5, is_stopped=True)
    assert sent(Totals(), 0.1) == Sent(0, 0, 0, {}, 0.1, is_stopped=False)


def test_dry_run_counts_the_messages_of_each_topic() -> None:
    would = planned({"B": 2, None: 7, "A": 1}, 0.5)
    assert would == Sent(3, 7, 0, {"A": 1, "B": 2}, 0.5, is_stopped=False)
    assert list(would.topics) == ["A", "B"]
