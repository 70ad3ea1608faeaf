from dataclasses import replace
from typing import Any

import pytest

from ternmq_broker.state.fastjson import parse_json, write_json
from ternmq_broker.state.groups import GroupTable
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import IllegalName, InvalidParameter, RefusedError
from ternmq_model.group_settings import GroupSettings

OF_ROCKETMQ = """{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":17},"forbiddenTable":{},
"subscriptionGroupTable":{"G":{"attributes":{},"brokerId":0,"consumeBroadcastEnable":false,
"consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":false,
"consumeTimeoutMinute":15,"groupName":"G","groupRetryPolicy":{"type":"EXPONENTIAL"},
"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":1,
"whichBrokerWhenConsumeSlowly":1}}}"""


def test_group_is_created_on_first_use() -> None:
    table = GroupTable(DataVersion(0))
    assert table.get("G") is None
    group = table.use("G", now_ms=5)
    assert group.consume_enabled
    assert table.version == DataVersion(5, 1)
    assert table.use("G", now_ms=6) is group
    assert table.version == DataVersion(5, 1)


def test_illegal_name_creates_no_group() -> None:
    table = GroupTable(DataVersion(0))
    with pytest.raises(IllegalName, match="group"):
        table.use("no good", now_ms=1)
    assert list(table) == []


def test_rocketmqs_file_is_read_without_loss() -> None:
    table = GroupTable.from_dict(parse_json(OF_ROCKETMQ), now_ms=1)
    group = table.get("G")
    assert group is not None
    assert not group.broadcast_enabled
    assert parse_json(write_json(table.to_dict())) == parse_json(OF_ROCKETMQ)


def test_written_table_has_rocketmqs_shape() -> None:
    table = GroupTable(DataVersion(0))
    table.use("G", now_ms=5)
    written = table.to_dict()["subscriptionGroupTable"]["G"]
    assert written["groupName"] == "G"
    assert written["retryMaxTimes"] == 16


def test_broken_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="G is 3"):
        GroupTable.from_dict(parse_json('{"subscriptionGroupTable":{"G":3}}'), now_ms=1)


def test_group_whose_name_cannot_be_is_written_back_unused() -> None:
    entries: dict[str, Any] = {"my group": {"retryMaxTimes": 3, "x": [1]}, "g" * 300: {}, "": 7}
    table = GroupTable.from_dict({"subscriptionGroupTable": entries | {"G": {}}}, now_ms=1)
    assert [each.group for each in table] == ["G"]
    other = GroupTable(DataVersion(0))
    other.take_over(table.copy())
    written = parse_json(write_json(other.to_dict()))["subscriptionGroupTable"]
    del written["G"]
    assert written == entries
    with pytest.raises(IllegalName):
        table.use("my group", now_ms=2)


def test_long_group_of_rocketmq_is_kept_and_not_made() -> None:
    name = "g" * 255
    text = f'{{"subscriptionGroupTable":{{"{name}":{{"retryMaxTimes":3}}}}}}'
    table = GroupTable.from_dict(parse_json(text), now_ms=1)
    assert table.to_dict()["subscriptionGroupTable"][name]["retryMaxTimes"] == 3
    assert table.use(name, now_ms=2).retries_max == 3
    assert not table.put(GroupSettings(name, retries_max=4), now_ms=2)
    with pytest.raises(IllegalName):
        table.use("h" * 121, now_ms=2)
    with pytest.raises(IllegalName):
        table.put(GroupSettings("h" * 121), now_ms=2)


def test_unknown_fields_of_later_rocketmq_are_written_back() -> None:
    text = '{"subscriptionGroupTable":{},"forbiddenTable":{"G":{"T":1}},"later":[1]}'
    table = GroupTable.from_dict(parse_json(text), now_ms=1)
    written = table.to_dict()
    del written["dataVersion"]
    assert written == parse_json(
        '{"subscriptionGroupTable":{},"forbiddenTable":{"G":{"T":1}},"later":[1]}'
    )


def test_settings_survive_their_file() -> None:
    table = GroupTable(DataVersion(0))
    settings = GroupSettings("G", False, False, True, 0, 3, 1, 2, False)
    assert table.put(settings, now_ms=1)
    assert not table.put(settings, now_ms=2)
    assert table.version == DataVersion(1, 1)
    read = GroupTable.from_dict(parse_json(write_json(table.to_dict())), now_ms=9)
    assert read.get("G") == settings
    assert not read.notifies_members("G")
    assert read.notifies_members("H")


def test_rocketmqs_start_from_min_is_kept_without_effect() -> None:
    table = GroupTable.from_dict(parse_json(OF_ROCKETMQ), now_ms=1)
    group = table.get("G")
    assert group is not None
    assert not group.consume_from_min_enabled
    assert group.retries_max == 3
    table.put(replace(group, consume_from_min_enabled=True), now_ms=2)
    written = table.to_dict()["subscriptionGroupTable"]["G"]
    assert written["consumeFromMinEnable"] is True
    assert written["attributes"] == {"ternmq.consume.from.min": "true"}
    table.put(group, now_ms=3)
    assert table.to_dict()["subscriptionGroupTable"]["G"]["attributes"] == {}


def test_forgotten_group_drops_what_a_file_kept_of_it() -> None:
    table = GroupTable.from_dict(parse_json(OF_ROCKETMQ), now_ms=1)
    assert table.remove("G", now_ms=2)
    assert not table.remove("G", now_ms=3)
    table.use("G", now_ms=4)
    assert table.to_dict()["subscriptionGroupTable"]["G"]["groupRetryPolicy"] == {
        "type": "CUSTOMIZED"
    }


@pytest.mark.parametrize(
    "change", [{"retry_queues": 65}, {"retries_max": -1}, {"broker_id": -1}, {"group": "T@G"}]
)
def test_impossible_settings_change_nothing(change: dict[str, Any]) -> None:
    table = GroupTable(DataVersion(0))
    with pytest.raises((InvalidParameter, IllegalName)):
        table.put(replace(GroupSettings("G"), **change), now_ms=1)
    assert list(table) == []


def test_number_of_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ternmq_broker.state.groups.GROUPS_MAX", 2)
    table = GroupTable(DataVersion(0))
    for name in ("A", "B"):
        table.use(name, now_ms=1)
    for add in (
        lambda: table.use("C", now_ms=2),
        lambda: table.put(GroupSettings("C"), now_ms=2),
    ):
        with pytest.raises(RefusedError, match="at most 2 groups"):
            add()
    assert table.use("A", now_ms=3).group == "A"
    table.remove("B", now_ms=4)
    assert table.use("C", now_ms=5).group == "C"


def test_slaves_groups_adopt_its_masters_except_those_begun_here() -> None:
    table = GroupTable.from_dict(parse_json(OF_ROCKETMQ), now_ms=1)
    table.use("HERE", now_ms=1)

    def told(*names: str) -> GroupTable:
        other = GroupTable(DataVersion(9))
        for name in names:
            other.use(name, now_ms=9)
        return other

    assert table.take_over(told("M")) == ["G"]
    assert [each.group for each in table] == ["HERE", "M"]
    assert table.version == DataVersion(9, 1)
    assert table.take_over(told("HERE", "N")) == ["M"]
    assert table.take_over(told("N")) == ["HERE"]
    assert [each.group for each in table] == ["N"]
