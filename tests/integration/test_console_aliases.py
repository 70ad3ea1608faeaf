"""mqadmin's names against `ternmq dev`: each does what our verb does, with the same result."""

from collections.abc import Generator, Iterable
from typing import Any, cast

import pytest

from tests.support.console import invoke, json_of, text_of
from tests.support.processes import ServiceProcess, running_dev


class Both:
    """Runs one thing by its two names."""

    def __init__(self, dev: ServiceProcess) -> None:
        self.broker = dev.broker
        self.name = dev.broker_name
        self.nameserver = dev.nameserver

    def json(self, line: str) -> Any:
        """Run our verb, or mqadmin's, and return what it prints."""
        words = line.split()
        words += ["--nameserver" if words[0].islower() else "-n", self.nameserver]
        return json_of(*words)

    def missing(self, line: str) -> None:
        """Run mqadmin's verb, which must find nothing."""
        assert invoke(*line.split(), "-n", self.nameserver).exit_code == 3

    def same(self, alias: str, ours: str) -> Any:
        """Run both, and return what both print."""
        first, second = self.json(alias), self.json(ours)
        assert _steady(first) == _steady(second)
        return first


def _steady(told: Any) -> Any:
    """Leave out what differs from one moment to the next."""
    if isinstance(told, list):
        return list(map(_steady, cast("Iterable[Any]", told)))
    if isinstance(told, dict):
        return {
            name: _steady(value)
            for name, value in cast("dict[str, Any]", told).items()
            if not name.endswith(("_per_s", "lag_s", "_ms")) and "disk" not in name
        }
    return told


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Generator[Both]:
    folder = tmp_path_factory.mktemp("dev")
    with running_dev(folder) as dev:
        both = Both(dev)
        both.json("updateTopic -t orders -r 2 -w 2")
        yield both


@pytest.fixture(scope="module")
def sent(both: Both) -> Any:
    result = both.json("sendMessage -t orders -p hello -k key-1 -c blue")
    text_of("consume", "orders", "--group=readers", "--max=1", "--nameserver", both.nameserver)
    return result


def test_topic_aliases_match_our_commands(both: Both) -> None:
    assert both.same("updateTopic -t made -r 3 -w 3 -p 6", "topic create made --queues 3")
    assert both.same("topicStatus -t made", "topic status made")
    (route,) = both.same("topicRoute -t made", "topic routes made")["brokers"]
    assert (route["read_queues"], route["permissions"]) == (3, "RW-")
    assert {"topic": "made"} in both.same("topicList -c", "topic list --all")
    both.json("updateTopic -t other")
    gone = both.json("deleteTopic -c DefaultCluster -t made")["deleted_from"]
    assert gone == both.json("topic delete other")["deleted_from"] == [both.name]


def test_broker_aliases_match_our_commands(both: Both) -> None:
    assert both.same("clusterList", "cluster list")[0]["broker"] == both.name
    assert both.json("clusterList -c DefaultCluster")[0]["broker"] == both.name
    both.missing("clusterList -c AnotherCluster")
    by_address = both.json(f"brokerStatus -b {both.broker}")
    assert by_address["broker"] == both.json(f"broker status {both.name}")["broker"]
    assert both.json(f"wipeWritePerm -b {both.name}")["topics_changed"] > 0
    assert both.json(f"broker set-permission {both.name} rw")["topics_changed"] > 0
    assert both.json(f"broker set-permission {both.name} r")["topics_changed"] > 0
    assert both.json(f"addWritePerm -b {both.name}")["topics_changed"] > 0


def test_setting_aliases_match_our_commands(both: Both) -> None:
    (changed,) = both.same(
        f"updateBrokerConfig -b {both.broker} -k fileReservedTime -v 48 --yes",
        f"broker settings {both.name} --set store.file_reserved_hours=48 --yes",
    )
    assert changed["value"] == "48"
    assert len(both.json(f"broker settings {both.name}")) > 20


def test_message_aliases_match_our_commands(both: Both, sent: Any) -> None:
    message_id = sent["message_id"]
    ours = f"message get {message_id}"
    assert both.same(f"queryMsgById -i {message_id}", ours)["body"] == "hello"
    assert both.same(f"queryMsgByUniqueKey -t orders -i {message_id}", ours)["keys"] == ["key-1"]
    by_key = both.same(
        "queryMsgByKey -t orders -k key-1 -m 5", "message query --topic orders --key key-1 --max 5"
    )
    assert [one["message_id"] for one in by_key] == [message_id]
    place = f"{sent['broker']} {sent['queue']} {sent['offset']}".split()
    at = both.same(
        "queryMsgByOffset -t orders -b {} -i {} -o {}".format(*place),
        "message query-by-offset orders --broker {} --queue {} --offset {}".format(*place),
    )
    assert at["message_id"] == message_id
    printed = both.same("printMsg -t orders -s blue", "message print orders --tag blue")
    assert [one["body"] for one in printed] == ["hello"]
    assert both.same(
        f"consumeMessage -t orders -b {both.broker} -c 1",
        f"message print orders --broker {both.name} --max 1",
    )
    again = both.json("message send orders --body again --broker {} --queue {}".format(*place))
    assert again["queue"] == sent["queue"]


def test_group_aliases_match_our_commands(both: Both, sent: Any) -> None:
    rows = both.same("consumerProgress -g readers", "offset show readers")
    assert {row["topic"] for row in rows} >= {"orders"}
    assert any(row["group"] == "readers" for row in both.same("consumerProgress", "offset show"))
    assert both.same("consumerConnection -g readers", "group consumers readers") == []
    assert both.same("consumerStatus -g readers", "group consumers readers --state") == []
    both.missing("producerConnection -g nobody -t orders")
    assert both.same("statsAll -t orders", "stats all orders")
    made = both.same("updateSubGroup -g writers -r 3 -s true", "group create writers --retries 3")
    assert made["brokers"] == [both.name]
    (kept,) = both.json("group describe writers")["settings"]
    assert (kept["retries_max"], kept["consume_enabled"]) == (3, True)


def test_offset_aliases_match_our_commands(both: Both, sent: Any) -> None:
    first = both.json("resetOffsetByTime -g readers -t orders -s 0 -f true")
    assert all(row["after"] == 0 for row in first)
    cloned = both.json("cloneGroupOffset -s readers -d copies -t orders")
    assert {row["topic"] for row in cloned} == {"orders"}
    skipped = both.json("skipAccumulatedMessage -g readers -t orders")
    assert both.json("offset skip copies orders")[0]["after"] == skipped[0]["after"]
    assert sum(row["lag"] for row in both.json("offset show readers --topic orders")) == 0
    assert both.json("deleteSubGroup -g copies -r true")["deleted_from"] == [both.name]


def test_trace_alias_exits_with_3_for_unknown_id(both: Both) -> None:
    both.json(f"broker settings {both.name} --set broker.trace=true")
    both.json("topic create traces --queues 1")
    both.missing(f"queryMsgTraceById -i {'F' * 32} -t traces")
