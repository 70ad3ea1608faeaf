import pytest

from benchmarks.compare import Pair, table

SYNC = "sync flush, everything on"
ASYNC = "async flush, everything on"


def cells(text: str) -> list[list[str]]:
    """Return the cells of the rows of a table below its head."""
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_ratio_is_the_median_of_paired_ratios() -> None:
    # A machine that is three times as slow in the second pair leaves the ratios as they are.
    pairs: list[Pair] = [
        ({(SYNC, "push"): 300.0}, {(SYNC, "push"): 330.0}),
        ({(SYNC, "push"): 100.0}, {(SYNC, "push"): 120.0}),
        ({(SYNC, "push"): 200.0}, {(SYNC, "push"): 100.0}),
    ]
    [row] = cells(table("abc", pairs))
    name = "PushConsumer, batch listener, msg/s"
    assert row == [name, SYNC, "200", "120", "1.100", "0.500", "1.200"]


def test_ratio_above_one_is_less_time_and_more_messages() -> None:
    pairs: list[Pair] = [
        (
            {(ASYNC, "alone.p50"): 200.0, (SYNC, "alone.p50"): 400.0, (ASYNC, "pull"): 100.0},
            {(ASYNC, "alone.p50"): 100.0, (SYNC, "alone.p50"): 500.0, (ASYNC, "pull"): 300.0},
        )
    ]
    text = table("abc", pairs)
    assert [row[4] for row in cells(text)] == ["2.000", "0.800", "3.000"]
    assert text.endswith("Median of all ratios: 2.000")


def test_figures_of_one_side_or_without_a_value_are_left_out() -> None:
    pairs: list[Pair] = [
        (
            {(SYNC, "push"): 1.0, (SYNC, "pull"): 1.0, (SYNC, "idle.cpu"): 0.0, (SYNC, "old"): 1.0},
            {(SYNC, "pull"): 1.0, (SYNC, "idle.cpu"): 0.2, (SYNC, "old"): 1.0},
        )
    ]
    assert [row[0] for row in cells(table("abc", pairs))] == ["PullConsumer, msg/s"]
    with pytest.raises(SystemExit, match="abc and the checkout have no figure in common"):
        table("abc", [({(SYNC, "push"): 1.0}, {})])
