"""Metrics as the parsers of Prometheus read them, and answers of a metrics port."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from ternmq_runtime.metrics.port import Scrape, ScrapedProcess
from ternmq_runtime.metrics.scrape import SeriesTable, metrics_text


class Sample(NamedTuple):
    """One line of a scrape."""

    name: str
    labels: dict[str, str]
    value: float
    kind: str
    """Kind of its family."""


def answer_of(url: str, accept: str = "", *, timeout_s: float) -> tuple[int, str]:
    """Return status and text of the answer to a request."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def parsed(text: str, *, is_openmetrics: bool = False) -> list[Sample]:
    """Return the samples of a scrape.

    Raises:
        ValueError: The text does not keep to its format.
    """
    reader: Any = openmetrics_parser if is_openmetrics else parser
    return [
        Sample(sample.name, sample.labels, sample.value, family.type)
        for family in reader.text_string_to_metric_families(text)
        for sample in family.samples
    ]


def samples_of(add: Callable[[Scrape], None]) -> list[Sample]:
    """Return the samples that `add` adds to a scrape."""

    async def collect() -> str:
        table = SeriesTable(1_000)
        add(Scrape(table))
        return metrics_text(table.end(("", "", "")), is_openmetrics=False)

    return parsed(asyncio.run(collect()))


class Scraped:
    """Samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.samples = parsed(text)

    def all(self, name: str, **labels: str) -> list[Sample]:
        """Return the samples of a name that have these labels."""
        return [
            each
            for each in self.samples
            if each.name == name and labels.items() <= each.labels.items()
        ]

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a name that have these labels; 0 without any."""
        return sum(each.value for each in self.all(name, **labels))


async def scraped(process: ScrapedProcess) -> Scraped:
    """Return what a process shows, without its port."""
    table = SeriesTable(1_000)
    await process.collect(Scrape(table))
    return Scraped(metrics_text(table.end(process.node), is_openmetrics=False))
