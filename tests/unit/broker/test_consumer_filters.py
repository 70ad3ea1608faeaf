from dataclasses import replace

import pytest

from ternmq_broker.consumer_filters import FilterTable
from ternmq_broker.loose_json import parse_json, write_json

ROCKETMQ = """{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"bloomFilterData":{"bitNum":112,
"bitPos":[3,70,111]},"bornTime":5,"clientVersion":9,"consumerGroup":"G","deadTime":0,"dead":false,
"expression":"a>1","expressionType":"SQL92","topic":"T"}},"topic":"T"}},"later":1}"""


def test_rocketmqs_file_is_read_and_written_back_with_all_it_has() -> None:
    table = FilterTable.from_dict(parse_json(ROCKETMQ))
    found = table.get("T", "G")
    assert found is not None
    assert (found.expression, found.expression_type, found.born_at_ms) == ("a>1", "SQL92", 5)
    assert (found.bloom_bits, found.bloom_positions) == (112, (3, 70, 111))
    assert table.get("T", "H") is None
    assert parse_json(write_json(table.to_dict())) == parse_json(ROCKETMQ)


def test_a_filter_that_changes_is_a_change_and_keeps_what_else_the_file_has() -> None:
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
def test_another_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is .*, not"):
        FilterTable.from_dict(parse_json(text))
