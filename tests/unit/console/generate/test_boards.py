import json
import re
from typing import Any, cast

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from ternmq_console.generate.boards import BOARDS
from ternmq_console.generate.panels import Board, board_json

register_default_plugins()

every_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)


def leaves(value: object, place: str = "") -> dict[str, object]:
    """Return what a document has inside its objects and lists, by place."""
    members: dict[Any, object] = {}
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
    elif isinstance(value, list):
        members = dict(enumerate(cast("list[object]", value)))
    if not members:
        return {place: value}
    found: dict[str, object] = {}
    for name, member in members.items():
        found |= leaves(member, f"{place}/{name}")
    return found


def losses(given: Any, decoded: Any) -> list[str]:
    """Return the places of what a decoder lost or changed. It may add defaults."""
    kept = leaves(decoded)
    return [place for place, value in leaves(given).items() if kept.get(place, losses) != value]


def decoded(document: Any) -> Any:
    return json.loads(json.dumps(Dashboard.from_json(document), cls=JSONEncoder))


@every_board
def test_board_follows_the_schema_of_grafana(board: Board) -> None:
    document = json.loads(json.dumps(board_json(board)))
    assert not losses(document, decoded(document))


@pytest.mark.parametrize("place", ["fieldConfig", "gridPos", "options"])
def test_unknown_member_of_a_board_is_found(place: str) -> None:
    document = json.loads(json.dumps(board_json(BOARDS[0])))
    document["panels"][-1][place]["invented"] = 1
    [lost] = losses(document, decoded(document))
    assert lost.endswith(f"/{place}/invented")


@every_board
def test_expressions_use_the_variables_of_their_board(board: Board) -> None:
    known = {variable.name for variable in board.variables} | {"__rate_interval"}
    texts = [query for panel in board.panels for query in panel.queries.values()]
    texts += [variable.values for variable in board.variables]
    used = {name for text in texts for name in re.findall(r"\$(\w+)", text)}
    assert used <= known
    assert known - used <= {board.variables[-1].name}


@every_board
def test_legends_are_labels_that_the_expression_keeps(board: Board) -> None:
    for panel in board.panels:
        for legend, query in panel.queries.items():
            kept = re.search(r"by \(([^)]*)\)|group_left \(", query)
            names = set(re.findall(r"\{\{(\w+)\}\}", legend))
            if kept is not None and kept[1] is not None:
                assert names <= set(kept[1].split(", ")), (panel.title, legend, query)


@every_board
def test_titles_of_panels_are_different(board: Board) -> None:
    titles = [panel.title for panel in board.panels]
    assert len(titles) == len(set(titles))


def test_boards_are_those_of_the_documentation() -> None:
    assert [board.name for board in BOARDS] == ["cluster", "topic", "group", "store"]
