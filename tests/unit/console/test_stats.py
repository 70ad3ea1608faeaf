from ternmq_console.stats import counter_row
from ternmq_protos.v1 import admin_pb2 as admin


def test_counter_shows_its_total_rate_and_spans() -> None:
    spans = [
        admin.StatisticsSpan(seconds=60, sum=90, rate=1.5, average=3),
        admin.StatisticsSpan(seconds=3600, sum=900, rate=0.25, average=3),
        admin.StatisticsSpan(seconds=7200, sum=1000, rate=0.1389, average=3),
    ]
    item = admin.StatisticsItem(name="TOPIC_PUT_NUMS", key="T", total=1000, spans=spans)
    row = counter_row("a", item)
    assert (row["broker"], row["key"], row["total"], row["per_s"]) == ("a", "T", 1000, 1.5)
    assert (row["last_minute"], row["last_hour"], row["last_day"]) == (90, 900, 1000)
    told = row["spans"]
    assert isinstance(told, dict)
    assert told["minute"] == {"seconds": 60, "sum": 90, "rate": 1.5, "average": 3}


def test_gauge_has_no_spans() -> None:
    row = counter_row("a", admin.StatisticsItem(name="GROUP_GET_FALL_TIME", key="T@G", total=7))
    assert (row["total"], row["per_s"], row["last_minute"]) == (7, None, None)
