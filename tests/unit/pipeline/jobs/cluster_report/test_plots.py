from xml.etree import ElementTree

import pytest

from ternmq_pipeline.jobs.cluster_report.plots import (
    OTHERS,
    TOPICS_MAX,
    bytes_text,
    colours,
    duration_text,
    largest,
    short,
    stacks,
    traffic_svg,
)
from ternmq_pipeline.jobs.cluster_report.report_tables import HourRow


def test_largest_values_come_first_and_zeros_are_left_out() -> None:
    assert largest({"a": 1, "b": 3, "c": 0, "d": 3}, 3) == [("b", 3), ("d", 3), ("a", 1)]
    assert largest({"a": 1, "b": 3}, 1) == [("b", 3)]


def test_topics_beyond_the_busiest_are_summed() -> None:
    rows = [HourRow(f"t{n}", hour, n) for n in range(TOPICS_MAX + 3) for hour in (0, 3_600_000)]
    starts, found = stacks(rows)
    assert starts == [0, 3_600_000]
    assert len(found) == TOPICS_MAX + 1
    assert list(found)[-1] == OTHERS
    assert found[OTHERS] == [0 + 1 + 2] * 2
    assert found["t9"] == [9, 9]


def test_topic_named_others_loses_nothing() -> None:
    rows = [HourRow(OTHERS, 0, 5), HourRow("a", 0, 1)]
    assert stacks(rows)[1] == {OTHERS: [5], "a": [1]}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.256, "0.26"), (12.5, "12.5"), (950, "950"), (999.6, "1 k"), (34_000_000, "34 M")],
)
def test_numbers_are_shortened(value: float, text: str) -> None:
    assert short(value) == text


def test_sizes_and_times_have_suitable_units() -> None:
    assert [bytes_text(n) for n in (7, 2048, 5 << 20, 3 << 30)] == [
        "7 B",
        "2.0 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]
    assert [duration_text(s) for s in (0, 0.42, 60, 125, 3600, 3_900, 90_000)] == [
        "0 s",
        "0.4 s",
        "1 min",
        "2 min 5 s",
        "1 h",
        "1 h 5 min",
        "1 d 1 h",
    ]


def test_empty_data_makes_no_plot() -> None:
    assert traffic_svg([]) == ""
    assert traffic_svg([HourRow("T", 0, 0)]) == ""


def test_plot_is_one_element_with_a_bar_of_its_colour_for_each_topic() -> None:
    pytest.importorskip("matplotlib")
    text = traffic_svg([HourRow(f"t{n}", 0, n) for n in range(1, TOPICS_MAX + 3)])
    assert ElementTree.fromstring(text).tag.endswith("svg")
    for number in range(TOPICS_MAX + 1):
        assert f"fill: var(--c{number})" in text


def test_colours_follow_the_order_of_the_stack_and_the_last_is_of_others() -> None:
    assert colours(["b", "a", OTHERS]) == {"b": 0, "a": 1, OTHERS: TOPICS_MAX}
