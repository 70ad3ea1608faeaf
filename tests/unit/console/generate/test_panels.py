from itertools import combinations

from ternmq_console.generate.panels import (
    Board,
    BoardVariable,
    Json,
    board_json,
    curves,
    stat,
)

STAT = stat("Topics", "short", "topics")
CURVES = curves("Rates", "cps", {"in {{node}}": "i", "out": "o"})
BOARD = Board(
    name="x",
    title="X",
    variables=[BoardVariable(name="node", label="Node", values="up, node_id")],
    rows={"First": [STAT, STAT, CURVES, CURVES], "Second": [CURVES]},
)


def overlap(one: Json, other: Json) -> bool:
    a, b = one["gridPos"], other["gridPos"]
    across = a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
    return bool(across and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"])


def test_panels_lie_beside_and_below_each_other() -> None:
    placed = board_json(BOARD)["panels"]
    assert not [pair for pair in combinations(placed, 2) if overlap(*pair)]
    assert all(each["gridPos"]["x"] + each["gridPos"]["w"] <= 24 for each in placed)
    assert [each["gridPos"]["y"] for each in placed] == [0, 1, 1, 1, 9, 17, 18]


def test_panels_and_rows_have_different_ids() -> None:
    placed = board_json(BOARD)["panels"]
    assert [each["id"] for each in placed] == list(range(1, 8))
    assert [each["title"] for each in placed if each["type"] == "row"] == ["First", "Second"]


def test_panel_has_a_query_for_each_legend() -> None:
    [*_, panel] = board_json(BOARD)["panels"]
    assert [(each["refId"], each["legendFormat"], each["expr"]) for each in panel["targets"]] == [
        ("A", "in {{node}}", "i"),
        ("B", "out", "o"),
    ]
    assert panel["fieldConfig"]["defaults"]["unit"] == "cps"


def test_variables_follow_the_data_source() -> None:
    source, node = board_json(BOARD)["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    assert node["query"]["query"] == "label_values(up, node_id)"
    assert node["datasource"]["uid"] == f"${{{source['name']}}}"


def test_panels_of_a_board_are_in_their_order() -> None:
    assert BOARD.panels == [STAT, STAT, CURVES, CURVES, CURVES]
