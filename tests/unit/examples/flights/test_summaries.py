"""What the Spark demo is compared with."""

from datetime import UTC, datetime

from summaries import (
    COLUMNS,
    WATERMARK,
    Place,
    Summary,
    computed,
    differences,
    hour_of,
    in_order,
    sentinel_row,
)

HOUR = datetime(2013, 1, 1, 10, tzinfo=UTC)
UA = Place("UA", HOUR)
DL = Place("DL", HOUR)


def row(carrier: str, delay: str, hour: str = "2013-01-01T10:00:00Z") -> dict[str, str]:
    return dict.fromkeys(COLUMNS, "") | {
        "carrier": carrier,
        "dep_delay": delay,
        "time_hour": hour,
    }


def test_rows_come_in_the_order_of_hours_and_else_stay_as_they_were() -> None:
    hours = ["2013-02-01T10:00:00Z", "2013-01-01T10:00:00Z", "2013-02-01T10:00:00Z"]
    rows = [row(carrier, "1", hour) for carrier, hour in zip("ABC", hours, strict=True)]
    lines = [",".join(each.values()) for each in rows]
    assert list(in_order(lines)) == [rows[1], rows[0], rows[2]]


def test_summary_counts_flights_and_the_delays_that_are_known() -> None:
    rows = [row("UA", "2"), row("UA", "NA"), row("UA", "-1"), row("DL", "")]
    assert computed(rows) == {UA: Summary(3, 0.5), DL: Summary(1, None)}


def test_sentinel_is_later_than_all_by_more_than_the_watermark() -> None:
    late = sentinel_row(HOUR)
    assert list(late) == list(COLUMNS)
    assert hour_of(late) - HOUR > WATERMARK


def test_every_difference_is_found() -> None:
    expected = {UA: Summary(3, 0.5), DL: Summary(1, None)}
    assert differences(expected, dict(expected)) == []
    assert differences(expected, {UA: Summary(3, 0.5)}) == [DL]
    assert differences({UA: Summary(3, 0.5)}, expected) == [DL]
    assert differences(expected, expected | {UA: Summary(2, 0.5)}) == [UA]
    assert differences(expected, expected | {UA: Summary(3, 0.6)}) == [UA]
    assert differences(expected, expected | {DL: Summary(1, 0.0)}) == [DL]
