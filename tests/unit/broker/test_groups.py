import pytest

from ternmq_broker.groups import GroupTable
from ternmq_broker.loose_json import parse_json, write_json
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import IllegalName

OF_ROCKETMQ = """{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":17},"forbiddenTable":{},
"subscriptionGroupTable":{"G":{"attributes":{},"brokerId":0,"consumeBroadcastEnable":false,
"consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":false,
"consumeTimeoutMinute":15,"groupName":"G","groupRetryPolicy":{"type":"EXPONENTIAL"},
"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":1,
"whichBrokerWhenConsumeSlowly":1}}}"""


def test_a_group_comes_into_being_on_first_use() -> None:
    table = GroupTable(DataVersion(0))
    assert table.get("G") is None
    group = table.use("G", now_ms=5)
    assert group.consume_enabled
    assert table.version == DataVersion(5, 1)
    assert table.use("G", now_ms=6) is group
    assert table.version == DataVersion(5, 1)


def test_an_illegal_name_makes_no_group() -> None:
    table = GroupTable(DataVersion(0))
    with pytest.raises(IllegalName, match="group"):
        table.use("no good", now_ms=1)
    assert list(table) == []


def test_a_file_of_rocketmq_is_read_and_nothing_in_it_is_lost() -> None:
    table = GroupTable.from_dict(parse_json(OF_ROCKETMQ), now_ms=1)
    group = table.get("G")
    assert group is not None
    assert not group.broadcast_enabled
    assert parse_json(write_json(table.to_dict())) == parse_json(OF_ROCKETMQ)


def test_what_is_written_has_rocketmqs_shape() -> None:
    table = GroupTable(DataVersion(0))
    table.use("G", now_ms=5)
    written = table.to_dict()["subscriptionGroupTable"]["G"]
    assert written["groupName"] == "G"
    assert written["retryMaxTimes"] == 16


@pytest.mark.parametrize("text", ['{"G":3}', '{"no good":{}}'])
def test_a_broken_entry_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        GroupTable.from_dict(parse_json(f'{{"subscriptionGroupTable":{text}}}'), now_ms=1)


def test_what_a_later_rocketmq_keeps_beside_the_table_is_written_back() -> None:
    text = '{"subscriptionGroupTable":{},"forbiddenTable":{"G":{"T":1}},"later":[1]}'
    table = GroupTable.from_dict(parse_json(text), now_ms=1)
    written = table.to_dict()
    del written["dataVersion"]
    assert written == parse_json(
        '{"subscriptionGroupTable":{},"forbiddenTable":{"G":{"T":1}},"later":[1]}'
    )
