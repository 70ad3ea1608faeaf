"""Series of scrapes up to a limit, and their text as both parsers of Prometheus read it."""

from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_runtime.metrics.families import HistogramCounts, MetricFamily, MetricKind
from ternmq_runtime.metrics.scrape import SeriesTable, metrics_text
from tests.support.metrics_text import parsed

NODE = ("c", "broker", "b")
SENT = MetricFamily(name="sent", kind=MetricKind.COUNTER, help="Sent.", labels=("topic",))
LAG = MetricFamily(name="lag", kind=MetricKind.GAUGE, help="Lag.", labels=("topic",))
AGE = MetricFamily(
    name="age", kind=MetricKind.GAUGE, help="Age.", labels=("topic",), is_extreme=True
)
SIZE = MetricFamily(
    name="size", kind=MetricKind.HISTOGRAM, help="Size.", labels=("topic",), bounds=(1, 10)
)
DISK = MetricFamily(name="disk", kind=MetricKind.GAUGE, help="Disk.", labels=("medium",))


def scraped(
    table: SeriesTable, family: MetricFamily, values: Mapping[str, float]
) -> Mapping[str, float]:
    """Return the values of a family by its own label, after a scrape with `values`."""
    for label, value in values.items():
        table.add(family, (*NODE, label), value)
    text = metrics_text(table.end(NODE), is_openmetrics=False)
    samples = [each for each in parsed(text) if each.name.removesuffix("_total") == family.name]
    assert {each.kind for each in samples} == {family.kind}
    return {each.labels[family.labels[0]]: each.value for each in samples}


def test_hidden_gauges_are_summed_and_ages_are_not() -> None:
    values = {"a": 3.0, "b": 4.0, "c": 5.0}
    assert scraped(SeriesTable(1), LAG, values) == {"a": 3, "other": 9}
    assert scraped(SeriesTable(1), AGE, values) == {"a": 3, "other": 5}


def test_hidden_series_are_counted_and_labels_of_the_service_have_no_limit() -> None:
    table = SeriesTable(1)
    assert scraped(table, DISK, {"a": 1, "b": 2}) == {"a": 1, "b": 2}
    for topic in "abc":
        table.add(LAG, (*NODE, topic), 1)
    text = metrics_text(table.end(NODE), is_openmetrics=False)
    assert 'ternmq_metrics_hidden_series{cluster="c",node_type="broker",node_id="b",' in text
    assert text.endswith('family="lag"} 2\n')


def test_series_stay_shown_until_a_scrape_has_them_no_more() -> None:
    table = SeriesTable(2)
    assert scraped(table, LAG, {"a": 1, "b": 2, "c": 3}) == {"a": 1, "b": 2, "other": 3}
    assert scraped(table, LAG, {"c": 3, "b": 2}) == {"b": 2, "other": 3}
    assert scraped(table, LAG, {"d": 4, "c": 3, "b": 2}) == {"b": 2, "d": 4, "other": 3}


@given(seed=st.integers(0, 1 << 30), series_max=st.integers(1, 6))
def test_counters_neither_fall_nor_lose_what_hidden_series_counted(
    seed: int, series_max: int
) -> None:
    random, table = Random(seed), SeriesTable(series_max)
    counts: dict[str, float] = {}
    before: Mapping[str, float] = {}
    for _ in range(12):
        for topic in random.sample("abcdefgh", 3):
            counts[topic] = counts.get(topic, 0) + random.randrange(5)
        if random.random() < 0.3:  # a scrape fails midway
            for topic in random.sample(sorted(counts), random.randint(0, len(counts))):
                table.add(SENT, (*NODE, topic), counts[topic])
            table.drop()
        if random.random() < 0.3:  # a topic is deleted
            del counts[random.choice(list(counts))]
        present = scraped(table, SENT, counts)
        assert len(present) <= series_max + 1
        assert all(present[topic] >= before[topic] for topic in before if topic in present)
        shown = {topic for topic in present if topic != "other"}
        hidden = sum(count for topic, count in counts.items() if topic not in shown)
        assert present.get("other", 0) >= hidden
        assert all(present[topic] == counts[topic] for topic in shown)
        before = present


def test_hidden_counter_counts_once_although_a_scrape_failed_before_it() -> None:
    table = SeriesTable(1)
    assert scraped(table, SENT, {"a": 1, "b": 5}) == {"a": 1, "other": 5}
    table.add(SENT, (*NODE, "a"), 2)
    table.drop()
    assert scraped(table, SENT, {"b": 6, "a": 2}) == {"a": 2, "other": 6}


def test_hidden_histogram_that_began_again_lets_no_bucket_fall() -> None:
    table, others = SeriesTable(1), list[Sequence[float] | float]()
    for values in ([1, 1, 1], [90]):  # fewer values, and a higher sum
        counts = HistogramCounts(SIZE.bounds)
        for value in values:
            counts.observe(value)
        table.add_histogram(SIZE, (*NODE, "a"), HistogramCounts(SIZE.bounds).values())
        table.add_histogram(SIZE, (*NODE, "b"), counts.values())
        ((_, _, rows), *_) = table.end(NODE)
        others.append(rows[-1])
    assert others == [[3, 3, 3, 3], [3, 3, 4, 93]]


def test_topic_of_the_name_other_is_summed_with_the_hidden_ones() -> None:
    table = SeriesTable(2)
    for topic, count in (("other", 1), ("a", 2), ("b", 3), ("c", 4)):
        table.add(SENT, (*NODE, topic), count)
    text = metrics_text(table.end(NODE), is_openmetrics=False)
    found = [each for each in parsed(text, is_openmetrics=False) if each.name == "sent_total"]
    assert [(each.labels["topic"], each.value) for each in found] == [("a", 2), ("other", 8)]


def test_scrape_that_failed_before_a_topic_of_the_name_other_is_dropped() -> None:
    table, counts = SeriesTable(2), {"other": 1, "a": 2, "b": 3, "c": 4}
    assert scraped(table, SENT, counts) == {"a": 2, "other": 8}
    table.add(SENT, (*NODE, "a"), 2)
    table.drop()
    assert scraped(table, SENT, counts) == {"a": 2, "other": 8}


@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_text_is_read_by_the_parsers_as_it_was_meant(*, is_openmetrics: bool) -> None:
    table, topic = SeriesTable(10), 'a"\\b\nc'
    counts = HistogramCounts(SIZE.bounds)
    counts.observe(5, 2)
    table.add_histogram(SIZE, (*NODE, topic), counts.values())
    table.add(SENT, (*NODE, topic), 7)
    table.add(LAG, (*NODE, topic), float("inf"))
    text = metrics_text(table.end(NODE), is_openmetrics=is_openmetrics)
    end = "# EOF\n" if is_openmetrics else ""
    samples = {
        (each.name, each.labels.get("le")): each
        for each in parsed(text + end, is_openmetrics=is_openmetrics)
    }
    assert {name: sample.value for name, sample in samples.items()} == {
        ("size_bucket", "1.0"): 0,
        ("size_bucket", "10.0"): 2,
        ("size_bucket", "+Inf"): 2,
        ("size_count", None): 2,
        ("size_sum", None): 10,
        ("sent_total", None): 7,
        ("lag", None): float("inf"),
    }
    assert all(sample.labels["topic"] == topic for sample in samples.values())
