"""Series of the scrapes of one process, up to a limit for each family, as text. Pure."""

import math
from collections.abc import Iterable, Iterator, Sequence
from operator import le
from typing import Final, cast

from ternmq_runtime.metrics.families import (
    FOLDED_LABELS,
    NODE_LABELS,
    MetricFamily,
    MetricKind,
)

OTHER: Final = "other"
"""Value of a folded label of the series above the limit."""

HIDDEN_SERIES: Final = MetricFamily(
    name="ternmq_metrics_hidden_series",
    kind=MetricKind.GAUGE,
    help="Series of a family above metrics.series_max, summed under other.",
    labels=("family",),
)

LabelValues = tuple[str, ...]
Numbers = Sequence[float]
"""Values of `HistogramCounts.values`; of another series, its only value."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class FamilySeries:
    """Series of one family over all scrapes. Owned by `SeriesTable`.

    A series is shown if fewer than the limit were when it first came, and stays so until a scrape
    has it no more. A hidden counter adds its increases to the series of `other`, which never falls.
    """

    def __init__(self, family: MetricFamily, series_max: int) -> None:
        self.family = family
        self._names = (*NODE_LABELS, *family.labels)
        self._folds = [name in FOLDED_LABELS for name in self._names]
        self._room = series_max if any(self._folds) else None
        """Series that may still be shown; None = there is no limit."""
        self._series_max = self._room
        # Two lists and no pairs, of which thousands would start a collection of garbage.
        self._texts: list[str] = []
        self._values: list[Numbers | float] = []
        self._shown: dict[LabelValues, str] = {}
        self._was_shown: dict[LabelValues, str] = {}
        self._hidden: dict[LabelValues, Numbers] = {}
        self._was_hidden: dict[LabelValues, Numbers] = {}
        self._others: dict[LabelValues, Numbers] = {}

    @property
    def hidden(self) -> int:
        """Number of hidden series in the present scrape."""
        return len(self._hidden)

    def add(self, values: LabelValues, value: Numbers | float) -> None:
        """Add a series to the present scrape, once."""
        text = self._was_shown.pop(values, None)
        if text is None:
            if self._room == 0 or values in self._was_hidden:
                self._fold(values, _numbers(value))
                return
            if self._room is not None:
                self._room -= 1
            text = self._text(values)
        self._shown[values] = text
        self._texts.append(text)
        self._values.append(value)

    def _fold(self, values: LabelValues, numbers: Numbers) -> None:
        is_gauge = self.family.kind is MetricKind.GAUGE
        before = None if is_gauge else self._was_hidden.get(values)
        self._hidden[values] = numbers
        if before is not None and all(map(le, before, numbers)):  # else it began again from 0
            numbers = [one - last for one, last in zip(numbers, before, strict=True)]
        key = tuple(
            OTHER if folds else value for value, folds in zip(values, self._folds, strict=True)
        )
        self._others[key] = self._together(self._others.get(key), numbers)

    def _together(self, present: Numbers | None, numbers: Numbers) -> Numbers:
        if present is None:
            return numbers
        if self.family.is_extreme:
            return (max(present[0], numbers[0]),)
        return [one + more for one, more in zip(present, numbers, strict=True)]

    def end(self) -> tuple[Sequence[str], Sequence[Numbers | float]]:
        """Return the labels as text and the values of all series, and begin the next scrape."""
        texts, self._texts = self._texts, []
        found, self._values = self._values, []
        for values, numbers in self._others.items():
            text, present = self._text(values), None
            if values in self._shown:  # a topic may have the name "other", too
                place = texts.index(text)
                del texts[place]
                present = _numbers(found.pop(place))
            together = self._together(present, numbers)
            texts.append(text)
            found.append(together if self.family.kind is MetricKind.HISTOGRAM else together[0])
        self._begin_next()
        return texts, found

    def _begin_next(self) -> None:
        if self.family.kind is MetricKind.GAUGE:
            self._others.clear()
        self._was_shown, self._shown = self._shown, {}
        self._was_hidden, self._hidden = self._hidden, {}
        if self._series_max is not None:
            self._room = self._series_max - len(self._was_shown)

    def drop(self) -> None:
        """End a scrape that failed, without rows. Series that it did not reach stay as they are."""
        self._shown = self._was_shown | self._shown
        self._hidden = self._was_hidden | self._hidden
        self._texts.clear()
        self._values.clear()
        self._begin_next()

    def _text(self, values: LabelValues) -> str:
        pairs = zip(self._names, values, strict=True)
        return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs)


def _numbers(value: Numbers | float) -> Numbers:
    return value if isinstance(value, Sequence) else (value,)


class SeriesTable:
    """Series of one process over all its scrapes. One owner; one scrape at a time.

    Args:
        series_max: Series that a family shows at most, if their labels have values of clients.
    """

    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._families: dict[MetricFamily, FamilySeries] = {}

    def add(self, family: MetricFamily, values: LabelValues, value: float) -> None:
        """Add the value of a counter or gauge to the present scrape.

        Args:
            family: Family of the series.
            values: Values of `NODE_LABELS` and of the family's labels, in this order.
            value: Value.
        """
        self._of(family).add(values, value)

    def add_histogram(self, family: MetricFamily, values: LabelValues, numbers: Numbers) -> None:
        """Add a histogram to the present scrape, with the numbers of `HistogramCounts.values`."""
        self._of(family).add(values, numbers)

    def end(self, node: LabelValues) -> "Iterator[ScrapedFamily]":
        """Yield the families of the present scrape, with counts of hidden series as `node`'s."""
        for each in list(self._families.values()):
            if each.hidden:
                self.add(HIDDEN_SERIES, (*node, each.family.name), each.hidden)
        for each in self._families.values():
            texts, values = each.end()
            if texts:
                yield each.family, texts, values

    def drop(self) -> None:
        """End the present scrape, which failed: the next one begins without what it added."""
        for each in self._families.values():
            each.drop()

    def _of(self, family: MetricFamily) -> FamilySeries:
        found = self._families.get(family)
        if found is None:
            found = self._families[family] = FamilySeries(family, self._series_max)
        return found


ScrapedFamily = tuple[MetricFamily, Sequence[str], Sequence[Numbers | float]]
"""A family with the labels and the values of its series."""


def metrics_text(scraped: Iterable[ScrapedFamily], *, is_openmetrics: bool) -> str:
    """Return a scrape in the text format of Prometheus, or in OpenMetrics without its end."""
    lines: list[str] = []
    for family, texts, values in scraped:
        sample = family.sample_name
        name = family.name if is_openmetrics else sample
        lines.append(f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n")
        if family.kind is not MetricKind.HISTOGRAM:
            rows = zip(texts, cast("Sequence[float]", values), strict=True)
            lines += [f"{sample}{{{labels}}} {number(value)}\n" for labels, value in rows]
            continue
        borders = [f'le="{float(bound)}"' for bound in family.bounds] + ['le="+Inf"']
        for labels, numbers in zip(texts, cast("Sequence[Numbers]", values), strict=True):
            *counts, total = numbers
            lines += [
                f"{name}_bucket{{{labels},{border}}} {count}\n"
                for border, count in zip(borders, counts, strict=True)
            ]
            lines.append(f"{name}_count{{{labels}}} {counts[-1]}\n")
            lines.append(f"{name}_sum{{{labels}}} {number(total)}\n")
    return "".join(lines)


def number(value: float) -> str:
    """Return a value as both formats write it."""
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else f"{value:+}".replace("inf", "Inf")
