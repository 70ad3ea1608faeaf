"""Write the tables of settings and of metrics into `docs/reference`: `make reference`."""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

from ternmq_broker.metrics import families as broker_families
from ternmq_console.services.commands import SECTIONS
from ternmq_nameserver import metrics as nameserver_metrics
from ternmq_remoting import rpc_latency, service_metrics
from ternmq_runtime.metrics import loop_pause, scrape
from ternmq_runtime.metrics.families import MetricFamily
from ternmq_runtime.settings.reference import settings_table
from tools.project import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "config.md"
MARKER: Final = "<!-- Written by `make reference`; a change belongs into the classes. -->\n"
"""Below it everything is generated."""

METRICS_PAGE: Final = ROOT / "docs" / "reference" / "metrics.md"
METRICS_MARKER: Final = "<!-- Written by `make reference` from the families. -->\n"
FAMILIES: Final = {
    "Broker": (broker_families,),
    "NameServer": (nameserver_metrics,),
    "Broker and NameServer": (service_metrics, rpc_latency),
    "Every process": (loop_pause, scrape),
}
"""Modules with families, by the heading of their table."""


def page_with_tables(page: str) -> str:
    """Return `page` with the tables below its marker as the classes have them now."""
    return _with_tables(page, MARKER, f"\n{settings_table(SECTIONS)}")


def families_of(modules: Iterable[ModuleType]) -> list[MetricFamily]:
    """Return the families that modules define, by name."""
    found = {
        each.name: each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, MetricFamily)
    }
    return [found[name] for name in sorted(found)]


def metrics_page_with_tables(page: str) -> str:
    """Return `page` with the tables of metrics below its marker as the modules have them now."""
    tables = (_metrics_table(title, families_of(found)) for title, found in FAMILIES.items())
    return _with_tables(page, METRICS_MARKER, "".join(tables))


def _with_tables(page: str, marker: str, tables: str) -> str:
    text, found, _ = page.partition(marker)
    assert found, "the page has no marker"
    return f"{text}{marker}{tables}"


def _metrics_table(title: str, families: Iterable[MetricFamily]) -> str:
    rows = [f"\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"]
    for each in families:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        rows.append(f"| `{each.sample_name}` | {each.kind} | {labels} | {each.help} |\n")
    return "".join(rows)


def main(page: Path = PAGE, metrics_page: Path = METRICS_PAGE) -> None:
    """Renew both pages."""
    page.write_text(page_with_tables(page.read_text()))
    metrics_page.write_text(metrics_page_with_tables(metrics_page.read_text()))


if __name__ == "__main__":
    main()
