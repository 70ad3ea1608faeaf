"""Boards of Grafana as tables: rows of panels with titles, units and expressions. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SCHEMA_VERSION: Final = 39
"""Version of the JSON of Grafana 10.4 and 11. Later ones convert it."""

_WIDTH: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_HEIGHT: Final = {"stat": 4, "timeseries": 8}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardPanel:
    """Panel of a board: curves over time, or one number."""

    title: str
    unit: str
    """Grafana's name of the unit: `s`, `decbytes`, `cps` (a second), `short`."""

    queries: Mapping[str, str]
    """Expression of each curve's legend, in which `{{topic}}` is a label."""

    description: str = ""
    """Meaning, and the first thing to do; empty = the title has it."""

    kind: str = "timeseries"
    """`timeseries` or `stat`."""

    columns: int = 12
    """Width, of 24."""


def stat(title: str, unit: str, query: str, description: str = "") -> BoardPanel:
    """Return a narrow panel with one number."""
    return BoardPanel(
        title=title,
        unit=unit,
        queries={title.lower(): query},
        description=description,
        kind="stat",
        columns=3,
    )


def curves(title: str, unit: str, queries: Mapping[str, str], description: str = "") -> BoardPanel:
    """Return a panel with curves, half as wide as the board."""
    return BoardPanel(title=title, unit=unit, queries=queries, description=description)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardVariable:
    """Choice above the panels: values of a label."""

    name: str
    label: str
    values: str
    """Metric with the label, with a selector, and the label: arguments of `label_values`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Board with its choices and titled rows of panels."""

    name: str
    title: str
    variables: Sequence[BoardVariable]
    rows: Mapping[str, Sequence[BoardPanel]]

    @property
    def panels(self) -> list[BoardPanel]:
        """All panels in their order."""
        return [panel for panels in self.rows.values() for panel in panels]


def board_json(board: Board) -> Json:
    """Return the JSON of a board as Grafana 10 or later imports it."""
    choice = {"type": "datasource", "name": "datasource", "label": "Data source"}
    return {
        "uid": f"ternmq-{board.name}",
        "title": board.title,
        "tags": ["ternmq"],
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": SCHEMA_VERSION,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{**choice, "query": "prometheus"}, *map(_variable_json, board.variables)]
        },
        "panels": _placed(board.rows),
    }


def _variable_json(variable: BoardVariable) -> Json:
    return {
        "type": "query",
        "name": variable.name,
        "label": variable.label,
        "datasource": _SOURCE,
        "query": {"query": f"label_values({variable.values})", "refId": variable.name},
        "regex": "/.+/",
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(rows: Mapping[str, Sequence[BoardPanel]]) -> list[Json]:
    """Return rows and panels with their ids and places, from the top to the bottom."""
    placed: list[Json] = []
    top = 0
    for title, panels in rows.items():
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        row: Json = {"type": "row", "title": title, "collapsed": False, "panels": []}
        placed.append({**row, "id": len(placed) + 1, "gridPos": place})
        top, left, height = top + 1, 0, 0
        for panel in panels:
            if left + panel.columns > _WIDTH:
                top, left, height = top + height, 0, 0
            height = max(height, _HEIGHT[panel.kind])
            place = {"h": _HEIGHT[panel.kind], "w": panel.columns, "x": left, "y": top}
            placed.append({**_panel_json(panel), "id": len(placed) + 1, "gridPos": place})
            left += panel.columns
        top += height
    return placed


def _panel_json(panel: BoardPanel) -> Json:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "targets": [
            {"refId": chr(65 + at), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for at, (legend, query) in enumerate(panel.queries.items())
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel.kind),
    }


def _defaults(panel: BoardPanel) -> Json:
    if panel.kind == "stat":
        return {"unit": panel.unit}
    custom = {"fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "spanNulls": False}
    return {"unit": panel.unit, "min": 0, "custom": custom}


def _options(kind: str) -> Json:
    if kind == "stat":
        reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {
            "reduceOptions": reduce,
            "colorMode": "none",
            "graphMode": "area",
            "textMode": "auto",
        }
    legend = {"displayMode": "table", "placement": "bottom", "showLegend": True}
    return {
        "legend": {**legend, "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
