import re
from html.parser import HTMLParser
from typing import Final

import pytest

from ternmq_pipeline.jobs.cluster_report.page import page
from ternmq_pipeline.jobs.cluster_report.report_tables import HourRow
from tests.support.reports import (
    empty_report,
    group_row,
    member_row,
    some_report,
    topic_row,
)

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

HOSTILE: Final = "\"><script src='http://x.y/z.js'>alert(1)</script>&amp;"
_VOID: Final = {"meta"}
_WIDE: Final = {"table", "svg"}


class Reading(HTMLParser):
    """Notes tags, attributes and texts, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.unframed: list[str] = []
        """Tables and plots that no frame lets scroll: wider than a narrow page, they are cut."""

        self._open: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag in _WIDE and ("div", "scroll") not in self._open:
            self.unframed.append(tag)
        if tag not in _VOID:
            self._open.append((tag, dict(attrs).get("class")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data)


def test_page_is_self_contained_and_runs_no_scripts() -> None:
    text = page(some_report())
    read = Reading(text)
    assert not {"script", "link", "img", "iframe", "object", "image"} & set(read.tags)
    for name, value in read.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "action")
        assert not name.endswith("href") or value.startswith("#")
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text


def test_figures_of_the_report_appear_on_the_page() -> None:
    rows = [group_row("late", lag=1234, lag_s=905.0, is_slow=True)]
    read = Reading(page(some_report(groups=rows)))
    assert read.tags.count("svg") == 1
    assert read.attributes.count(("class", "bars")) == 4
    for told in ("orders", "broker-a", "late", "1,234", "15 min 5 s", "5.0 MiB", "10.0.0.1:5512"):
        assert any(told in text for text in read.texts), told


def test_tables_and_plots_scroll_in_frames_that_keys_reach() -> None:
    text = page(some_report(groups=[group_row(lag=1, lag_s=400.0, is_slow=True)]))
    assert re.search(r"^\.scroll \{ overflow-x: auto;", text, re.MULTILINE)
    read = Reading(text)
    assert read.tags.count("table") == 5
    assert read.unframed == []
    frames = read.attributes.count(("class", "scroll"))
    assert read.attributes.count(("tabindex", "0")) == frames == 6


def test_plot_has_the_colours_of_the_page_which_has_others_in_the_dark() -> None:
    text = page(some_report())
    plot = text[text.index("<svg") : text.index("</svg>")]
    used = set(re.findall(r"var\((--\w+)\)", plot))
    assert {"--ink", "--line", "--c0"} <= used
    assert not re.search(r"[:\"]\s*#[0-9a-f]{3,6}\b", plot)
    light, _, dark = text[: text.index("</style>")].partition("prefers-color-scheme: dark")
    for name in used | {"--page", "--card", "--text", "--alarm"}:
        assert f"{name}: #" in light
    for name in ("--page", "--card", "--text", "--ink", "--line", "--c0", "--alarm"):
        assert f"{name}: #" in dark


def test_marks_that_turn_text_around_are_shown_as_escapes() -> None:
    name = "a\u202eb\u2066\x1b"
    report = some_report(
        brokers=(name,), members=[member_row(name)], groups=[group_row(name, lag_s=1.0)]
    )
    text = page(report)
    assert not set("\u202e\u2066\x1b") & set(text)
    assert Reading(text).texts.count(r"a\u202eb\u2066\x1b") == 3


def test_names_are_escaped_whatever_they_hold() -> None:
    report = some_report(
        brokers=(HOSTILE,),
        topics=[topic_row(HOSTILE)],
        groups=[group_row(HOSTILE, topic=HOSTILE, lag_s=400.0, is_slow=True)],
        members=[member_row(HOSTILE)],
        traffic=[HourRow(HOSTILE, 0, 3)],
    )
    read = Reading(page(report))
    assert "script" not in read.tags
    assert read.texts.count(HOSTILE) >= 5


def test_empty_cluster_has_a_page_too() -> None:
    read = Reading(page(empty_report()))
    assert "svg" not in read.tags
    assert "No group is behind." in read.texts
    assert any("No broker is registered." in text for text in read.texts)


def test_silent_consumer_has_no_numbers() -> None:
    row = member_row(queues=None, in_hand=None, messages_per_s=None, last_consumed_at_ms=None)
    assert "–" in Reading(page(some_report(members=[row]))).texts


def test_ids_of_plots_are_distinct() -> None:
    text = page(some_report(groups=[group_row(lag_s=9.0)]))
    ids = re.findall(r'<(?:clipPath|path|g) id="([mp][0-9a-f]{10})"', text)
    assert len(ids) == len(set(ids))
