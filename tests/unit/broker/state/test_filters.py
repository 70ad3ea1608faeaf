from dataclasses import replace

import pytest

from ternmq_broker.state.fastjson import parse_json, write_json
from ternmq_broker.state.filters import AHEAD_MAX_MS, BLOOM, FilterTable
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.subscription import SQL92, Subscription, parse_subscription

ROCKETMQ = """{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"bloomFilterData":{"bitNum":112,
"bitPos":[3,70,111]},"bornTime":5,"clientVersion":9,"consumerGroup":"G","deadTime":0,"dead":false,
"expression":"a>1","expressionType":"SQL92","topic":"T"}},"topic":"T"}},"later":1}"""


def test_rocketmqs_file_is_read_and_written_back_completely() -> None:
    table = FilterTable.from_dict(parse_json(ROCKETMQ))
    found = table.get("T", "G")
    assert found is not None
    assert (found.expression, found.expression_type, found.born_at_ms) == ("a>1", "SQL92", 5)
    assert (found.bloom_bits, found.bloom_positions) == (112, (3, 70, 111))
    assert table.get("T", "H") is None
    assert parse_json(write_json(table.to_dict())) == parse_json(ROCKETMQ)


def test_changed_filter_counts_and_keeps_the_rest_of_the_file() -> None:
    table = FilterTable.from_dict(parse_json(ROCKETMQ))
    (one,) = table
    table.put(one)
    assert table.changes == 0
    table.put(replace(one, dead_at_ms=7))
    assert table.changes == 1
    entry = table.to_dict()["filterDataByTopic"]["T"]["groupFilterData"]["G"]
    assert (entry["deadTime"], entry["dead"]) == (7, False)


@pytest.mark.parametrize(
    "text",
    [
        '{"filterDataByTopic":[]}',
        '{"filterDataByTopic":{"T":3}}',
        '{"filterDataByTopic":{"T":{"groupFilterData":{"G":3}}}}',
        '{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"bornTime":"x"}}}}}',
        '{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"bloomFilterData":{"bitPos":3}}}}}}',
    ],
)
def test_malformed_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is .*, not"):
        FilterTable.from_dict(parse_json(text))


def condition(text: str, version_ms: int) -> Subscription:
    return parse_subscription("T", text, SQL92, version_ms=version_ms)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        # now, what is told -> expression, version, born, dead
        ([], ("a = 1", 5, 100, 0)),
        ([(200, "a = 1", 5)], ("a = 1", 5, 100, 0)),
        ([(200, "a = 1", 6)], ("a = 1", 6, 100, 0)),
        ([(200, "a = 2", 6)], ("a = 2", 6, 200, 0)),
        ([(200, "a = 2", 4)], ("a = 1", 5, 100, 0)),
        ([(200, None, 0)], ("a = 1", 5, 100, 200)),
        ([(200, None, 0), (300, None, 0)], ("a = 1", 5, 100, 200)),
        ([(200, None, 0), (300, "a = 1", 5)], ("a = 1", 5, 300, 0)),
        ([(200, None, 0), (300, "a = 1", 6)], ("a = 1", 6, 300, 0)),
        ([(200, None, 0), (300, "a = 1", 4)], ("a = 1", 5, 100, 200)),
    ],
)
def test_registered_conditions_follow_the_newest_version(
    told: list[tuple[int, str | None, int]], kept: tuple[str, int, int, int]
) -> None:
    table = FilterTable()
    table.register("G", [condition("a = 1", 5)], now_ms=100, log_end=PhysicalOffset(100))
    for now_ms, text, version_ms in told:
        wanted = [] if text is None else [condition(text, version_ms)]
        table.register("G", wanted, now_ms=now_ms, log_end=PhysicalOffset(now_ms))
    (one,) = table
    assert (one.expression, one.client_version, one.born_at_ms, one.dead_at_ms) == kept
    assert list(table.alive("T")) == ([] if one.dead_at_ms else [one])
    assert (one.bloom_bits, one.bloom_positions) == (112, tuple(BLOOM.positions("G", "T")))


def test_condition_of_a_made_up_version_gives_way_to_any_other() -> None:
    for version_ms in (AHEAD_MAX_MS + 100, (1 << 63) - 1):
        table, slave = FilterTable(), FilterTable()
        for text, version in (("a = 1", version_ms), ("a = 2", 100)):
            table.register("G", [condition(text, version)], now_ms=99, log_end=PhysicalOffset(1))
            slave.take_over(table, now_ms=99, log_end=PhysicalOffset(1))
        assert [one.expression for one in (*table, *slave)] == ["a = 2", "a = 2"]


def test_filters_are_dead_after_a_start_until_registered_again() -> None:
    table = FilterTable.from_dict(parse_json(ROCKETMQ))
    assert [one.group for one in table.alive("T")] == ["G"]
    table.all_dead(now_ms=100_000)
    assert table.alive("T") == ()
    (one,) = table
    assert one.dead_at_ms == 70_000
    table.all_dead(now_ms=900_000)
    assert list(table) == [one]


def test_topics_and_groups_that_are_deleted_are_forgotten() -> None:
    table = FilterTable()
    for group in ("G", "H"):
        table.register(group, [condition("a = 1", 1)], now_ms=1, log_end=PhysicalOffset(1))
    table.remove_group("G")
    assert [one.group for one in table.alive("T")] == ["H"]
    table.remove_topic("T")
    assert list(table) == []


def test_condition_received_from_a_master_is_born_on_receipt() -> None:
    mine, told = FilterTable(), FilterTable.from_dict(parse_json(ROCKETMQ))
    mine.take_over(told, now_ms=100, log_end=PhysicalOffset(100))
    (one,) = mine
    assert (one.expression, one.born_at_ms) == ("a>1", 100)
    mine.take_over(
        FilterTable.from_dict(parse_json(ROCKETMQ)), now_ms=200, log_end=PhysicalOffset(200)
    )
    assert [(each.born_at_ms, each.begin) for each in mine] == [(100, 100)], "it is the same one"
    (theirs,) = told
    told.put(replace(theirs, expression="a>2"))
    mine.take_over(told, now_ms=300, log_end=PhysicalOffset(300))
    assert [(each.expression, each.born_at_ms) for each in mine] == [("a>2", 300)]
    assert [each.begin for each in mine] == [300]


def test_condition_registered_here_later_stays() -> None:
    mine, told = FilterTable(), FilterTable.from_dict(parse_json(ROCKETMQ))
    (theirs,) = told
    mine.put(replace(theirs, expression="newer", client_version=10))
    mine.take_over(told, now_ms=100, log_end=PhysicalOffset(100))
    assert [each.expression for each in mine] == ["newer"]
