from dataclasses import replace

import pytest

from ternmq_broker.registration import Registrant, register_request
from ternmq_broker.state import topics
from ternmq_broker.state.fastjson import parse_json, write_json, write_row
from ternmq_broker.state.topics import (
    REGISTERED_BYTES_MAX,
    TOPICS_MAX,
    TopicCreationMark,
    TopicTable,
)
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import IllegalName, RefusedError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import READ_WRITE, Permission, TopicConfig
from ternmq_remoting.rpc import Identity

OF_ROCKETMQ = """{
	"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1700000000000},
	"topicConfigTable":{
		"T":{"attributes":{"+queue.type":"BatchCQ"},"order":false,"perm":6,"readQueueNums":8,
			"topicFilterType":"MULTI_TAG","topicName":"T","topicSysFlag":1,"writeQueueNums":4}
	}
}"""


def table_with_template(queues: int = 8) -> TopicTable:
    table = TopicTable(DataVersion(0))
    table.set_template(queues=queues, is_allowed=True, now_ms=1)
    return table


def create(table: TopicTable, topic: str, queues: int = 0) -> TopicConfig | None:
    return table.create_for_send(topic, template="TBW102", queues=queues, now_ms=2)


def test_version_rises_with_every_change_and_with_nothing_else() -> None:
    table = TopicTable(DataVersion(0))
    assert table.put(TopicConfig("T"), now_ms=5) is True
    assert table.version == DataVersion(5, 1)
    assert table.put(TopicConfig("T"), now_ms=6) is False
    assert table.version == DataVersion(5, 1)
    assert table.put(TopicConfig("T", 4, 4), now_ms=7) is False
    assert table.version.counter == 2
    assert table.remove("T", now_ms=8) is True
    assert table.remove("T", now_ms=9) is False
    assert table.version == DataVersion(8, 3)


def test_topics_come_sorted() -> None:
    table = TopicTable(DataVersion(0))
    for name in ("b", "a", "c"):
        table.put(TopicConfig(name), now_ms=1)
    assert [config.topic for config in table] == ["a", "b", "c"]


def test_illegal_name_changes_nothing() -> None:
    table = TopicTable(DataVersion(0))
    with pytest.raises(IllegalName, match="topic"):
        table.put(TopicConfig("../../../../topic2020"), now_ms=1)
    assert len(table) == 0
    assert table.version == DataVersion(0)


def full_table(name_bytes: int) -> tuple[TopicTable, RefusedError]:
    """Return a table with as many topics as fit, and why no other does."""
    table = table_with_template()
    for number in range(TOPICS_MAX):
        try:
            table.put(TopicConfig(f"{number:0{name_bytes}}"), now_ms=1)
        except RefusedError as error:
            return table, error
    raise AssertionError("everything fits")


def registration(table: TopicTable) -> int:
    identity = Identity("cluster", "broker", 0, 1)
    return register_request(Registrant(identity, (), ""), table).ByteSize()


def test_topics_are_created_while_a_registration_can_hold_them() -> None:
    table, error = full_table(127)
    assert error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert f"at most {REGISTERED_BYTES_MAX} bytes" in str(error)
    assert REGISTERED_BYTES_MAX - 200 < registration(table) < REGISTERED_BYTES_MAX + 200
    assert 29_000 < len(table) < 31_000
    known = next(iter(table))
    with pytest.raises(RefusedError, match="does not fit"):
        create(table, "N" * 127)
    table.put(replace(known, permissions=Permission.READ), now_ms=1)
    table.set_template(queues=9, is_allowed=True, now_ms=1)
    table.remove(known.topic, now_ms=1)
    assert create(table, "N" * 127) is not None
    reread = TopicTable.from_dict(table.to_dict(), now_ms=1)
    with pytest.raises(RefusedError, match="does not fit"):
        create(reread, "M" * 127)


def test_short_topic_names_are_limited_to_the_nameservers_maximum() -> None:
    table, error = full_table(45)
    assert f"at most {TOPICS_MAX} topics" in str(error)
    assert len(table) == TOPICS_MAX
    assert registration(table) < REGISTERED_BYTES_MAX


@pytest.mark.parametrize(("asked", "given"), [(0, 4), (1, 1), (8, 8), (100, 8)])
def test_send_creates_a_topic_from_the_template(asked: int, given: int) -> None:
    table = table_with_template()
    config = create(table, "New", asked)
    assert config == TopicConfig("New", given, given, READ_WRITE)
    assert table.get("New") == config


def test_template_without_inherit_creates_nothing() -> None:
    table = TopicTable(DataVersion(0))
    table.put(TopicConfig("TBW102"), now_ms=1)
    assert create(table, "New") is None
    assert table.create_for_send("New", template="", queues=4, now_ms=2) is None
    assert table.get("New") is None


def test_disabled_automatic_creation_removes_inherit_from_the_template() -> None:
    table = table_with_template()
    table.set_template(queues=8, is_allowed=False, now_ms=3)
    template = table.get("TBW102")
    assert template is not None
    assert template.permissions == READ_WRITE
    assert create(table, "New") is None


def test_retry_topic_has_one_queue_and_needs_no_template() -> None:
    table = TopicTable(DataVersion(0))
    assert create(table, "%RETRY%G", 8) == TopicConfig("%RETRY%G", 1, 1, READ_WRITE)


def test_rocketmqs_file_is_read_without_loss() -> None:
    table = TopicTable.from_dict(parse_json(OF_ROCKETMQ), now_ms=1)
    assert table.get("T") == TopicConfig("T", 8, 4, Permission(6), 1, False)
    assert table.version == DataVersion(1_700_000_000_000, 2)
    again = parse_json(write_json(table.to_dict()))
    assert again == parse_json(OF_ROCKETMQ)


@pytest.mark.parametrize(
    "entry",
    [
        '"T"',
        "{}",
        '{"perm":6,"readQueueNums":"8","writeQueueNums":8}',
        '{"perm":6,"readQueueNums":8,"writeQueueNums":99999}',
        '{"topicName":"Other","perm":6,"readQueueNums":8,"writeQueueNums":8}',
    ],
)
def test_broken_entry_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="T"):
        TopicTable.from_dict(parse_json(f'{{"topicConfigTable":{{"T":{entry}}}}}'), now_ms=1)


def test_topic_whose_name_cannot_be_is_written_back_unused() -> None:
    entry = {"perm": 6, "readQueueNums": 8, "writeQueueNums": 8}
    entries = {"../x": entry, "my topic": {"new": [1]}, "t" * 128: entry}
    told = TopicTable.from_dict({"topicConfigTable": entries | {"T": entry}}, now_ms=1)
    table = TopicTable(DataVersion(0))
    table.take_over(told.copy())
    assert [each.topic for each in table] == ["T"]
    assert [each.topic for each in table.registered()] == ["T"]
    for made in (table.to_dict(), table.to_written()):
        written = parse_json(write_json(made))["topicConfigTable"]
        del written["T"]
        assert written == entries


def test_message_type_is_the_attribute_that_rocketmq_writes() -> None:
    text = OF_ROCKETMQ.replace('"+queue.type":"BatchCQ"', '"message.type":"FIFO"')
    table = TopicTable.from_dict(parse_json(text), now_ms=1)
    assert (table.message_type("T"), table.message_type("other")) == ("FIFO", "")


def test_topic_retention_is_kept_among_attributes_rocketmq_tolerates() -> None:
    table = TopicTable.from_dict(parse_json(OF_ROCKETMQ), now_ms=1)
    known = table.get("T")
    assert known is not None
    assert table.put(replace(known, retention_ms=86_400_000), now_ms=2) is False
    kept = table.to_dict()
    assert kept["topicConfigTable"]["T"]["attributes"] == {
        "+queue.type": "BatchCQ",
        "ternmq.retention.ms": "86400000",
    }
    again = TopicTable.from_dict(parse_json(write_json(kept)), now_ms=3)
    assert again.get("T") == replace(known, retention_ms=86_400_000)
    again.put(known, now_ms=4)
    assert again.to_dict()["topicConfigTable"]["T"]["attributes"] == {"+queue.type": "BatchCQ"}


def test_creation_is_kept_by_changes_copies_and_files_and_ends_with_its_topic() -> None:
    table, end = table_with_template(), 0
    table.log_end = lambda: PhysicalOffset(end)
    table.put(TopicConfig("T"), now_ms=5)
    assert table.created("T") == (0, 5)
    end = 700
    table.put(TopicConfig("T", 8, 8, retention_ms=1_000), now_ms=6)
    create(table, "New")
    master = TopicTable.from_dict(parse_json(write_json(table.copy().to_dict())), now_ms=7)
    slave = TopicTable(DataVersion(0))
    slave.take_over(master)
    for each in (table, slave):
        assert (each.created("T"), each.created("New")) == ((0, 5), (700, 2))
    table.remove("T", now_ms=8)
    assert table.created("T") == (0, 0)
    table.put(TopicConfig("Found"), now_ms=9, is_found=True)
    assert table.created("Found") == (0, 0)


@pytest.mark.parametrize(
    ("noted", "deleted", "settled"),
    [
        pytest.param(700, 0, TopicCreationMark(PhysicalOffset(700), 5), id="of its log"),
        pytest.param(700, 650, TopicCreationMark(PhysicalOffset(700), 5), id="created again"),
        pytest.param(
            0, 650, TopicCreationMark(PhysicalOffset(650), 0), id="found, or written by others"
        ),
        pytest.param(300, 650, TopicCreationMark(PhysicalOffset(650), 0), id="older than its log"),
    ],
)
def test_creation_is_settled_by_what_the_log_has(
    noted: int, deleted: int, settled: TopicCreationMark
) -> None:
    table = TopicTable(DataVersion(0))
    table.log_end = lambda: PhysicalOffset(noted)
    table.put(TopicConfig("T"), now_ms=5)
    table.to_written()
    before = table.version
    table.settle_created({"T": PhysicalOffset(deleted)}, now_ms=6)
    assert table.created("T") == settled
    assert f'"ternmq.created.log.offset": "{settled.log_offset}"' in write_json(table.to_written())
    # Slaves save what they take over by the version.
    assert (table.version != before) == (settled.log_offset != noted)


def test_creation_of_the_brokers_own_topics_is_not_noted() -> None:
    table = TopicTable(DataVersion(0))
    table.log_end = lambda: PhysicalOffset(700)
    table.put(TopicConfig("RMQ_SYS_TRACE_TOPIC", 1, 1), now_ms=5)
    assert table.created("RMQ_SYS_TRACE_TOPIC") == (0, 0)


def with_attribute(key: str) -> TopicTable:
    entry = (
        f'{{"perm":6,"readQueueNums":8,"writeQueueNums":8,"attributes":{{"ternmq.{key}":"soon"}}}}'
    )
    return TopicTable.from_dict(parse_json(f'{{"topicConfigTable":{{"T":{entry}}}}}'), now_ms=1)


def test_malformed_retention_is_refused() -> None:
    with pytest.raises(ValueError, match="retention"):
        with_attribute("retention.ms")


@pytest.mark.parametrize("key", ["created.log.offset", "created.ms"])
def test_malformed_creation_counts_as_not_noted(key: str) -> None:
    table = with_attribute(key)
    assert table.created("T") == (0, 0)
    table.settle_created({"T": PhysicalOffset(650)}, now_ms=2)
    assert table.created("T") == (650, 0)


def test_unknown_fields_of_later_rocketmq_are_written_back() -> None:
    text = '{"topicConfigTable":{},"later":[1]}'
    table = TopicTable.from_dict(parse_json(text), now_ms=1)
    written = table.to_dict()
    del written["dataVersion"]
    assert written == parse_json('{"topicConfigTable":{},"later":[1]}')


def test_slaves_table_adopts_its_masters_with_its_version() -> None:
    mine, told = table_with_template(), TopicTable.from_dict(parse_json(OF_ROCKETMQ), now_ms=1)
    mine.put(TopicConfig("OLD", 1, 1), now_ms=1)
    expected = told.to_dict()
    assert sorted(mine.take_over(told)) == ["OLD", "TBW102"]
    assert mine.to_dict() == expected
    assert [config.topic for config in mine] == ["T"]
    mine.put(TopicConfig("NEW", 1, 1), now_ms=2)
    assert mine.version.counter == 3


def test_written_rows_are_those_of_the_table_after_every_change() -> None:
    told = TopicTable.from_dict(parse_json(OF_ROCKETMQ), now_ms=1)

    def check(table: TopicTable) -> None:
        assert write_json(table.to_written()) == write_json(table.to_dict())
        assert [each.topic for each in table.registered()] == [each.topic for each in table]

    check(told)
    copied = told.copy()
    told.put(TopicConfig("T", 2, 2), now_ms=2)
    told.put(TopicConfig("a"), now_ms=2)
    check(told)
    check(copied)
    told.remove("T", now_ms=3)
    told.put(TopicConfig("T", 3, 3), now_ms=4)
    check(told)
    copied.take_over(told.copy())
    check(copied)
    assert copied.to_dict() == told.to_dict()


def test_slaves_table_writes_anew_the_rows_alone_that_its_master_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = TopicTable.from_dict(parse_json(OF_ROCKETMQ), now_ms=1)
    for name in ("a", "b", "c"):
        master.put(TopicConfig(name), now_ms=1)
    slave = TopicTable(DataVersion(0))

    def follow() -> list[str]:
        slave.take_over(TopicTable.from_dict(master.to_dict(), now_ms=1))
        written = list[str]()

        def note(name: str, row: object) -> str:
            written.append(name)
            return write_row(name, row)

        with monkeypatch.context() as patch:
            patch.setattr(topics, "write_row", note)
            assert write_json(slave.to_written()) == write_json(master.to_dict())
        return sorted(written)

    assert follow() == ["T", "a", "b", "c"]
    assert follow() == []
    master.put(TopicConfig("a", 1, 1), now_ms=2)
    master.remove("b", now_ms=3)
    assert follow() == ["a"]
