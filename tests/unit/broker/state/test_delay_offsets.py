import pytest

from ternmq_broker.state.delay_offsets import DelayOffsets
from ternmq_broker.state.fastjson import parse_json, write_json
from ternmq_model.data_version import DataVersion
from ternmq_model.offsets import PhysicalOffset, QueueOffset

ROCKETMQ = """{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1795216176598},
"offsetTable":{1:6,3:5,18:0},"later":[1]}"""


def test_rocketmqs_file_is_read_and_written_back_completely() -> None:
    table = DelayOffsets.from_dict(parse_json(ROCKETMQ), now_ms=1)
    assert [table.get(level) for level in (1, 2, 3, 18)] == [6, 0, 5, 0]
    assert parse_json(write_json(table.to_dict())) == parse_json(ROCKETMQ)


def test_moved_offset_is_a_change_and_200_are_a_version() -> None:
    table = DelayOffsets(DataVersion(1))
    table.put(2, QueueOffset(1), now_ms=5)
    table.put(2, QueueOffset(1), now_ms=5)
    assert table.changes == 1
    for offset in range(2, 201):
        table.put(2, QueueOffset(offset), now_ms=5)
    assert table.to_dict() == {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 5},
        "offsetTable": {"2": 200},
    }


@pytest.mark.parametrize("text", ['{"1":-1}', '{"0":1}', '{"x":1}', '{"1":"2"}', "[]"])
def test_senseless_offset_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        DelayOffsets.from_dict(parse_json('{"offsetTable":' + text + "}"), now_ms=1)


def test_slaves_table_adopts_its_masters() -> None:
    mine, told = (
        DelayOffsets(DataVersion(1)),
        DelayOffsets.from_dict(parse_json(ROCKETMQ), now_ms=1),
    )
    mine.put(2, QueueOffset(9), now_ms=1)
    expected, before = told.to_dict(), mine.changes
    mine.take_over(told)
    assert (mine.to_dict(), mine.changes) == (expected, before + 1)
    mine.take_over(DelayOffsets.from_dict(parse_json(ROCKETMQ), now_ms=1))
    assert mine.changes == before + 1
    told = DelayOffsets.from_dict(parse_json(ROCKETMQ), now_ms=1)
    told.put_search_start(PhysicalOffset(7))
    mine.take_over(told)
    assert (mine.search_from, mine.changes) == (7, before + 2)
