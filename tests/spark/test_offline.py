import functools
import json
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from ternmq_store.scan.user_topics import is_user_topic
from tests.support.processes import ServiceProcess
from tests.support.rocketmq import Line, manifest, unpack_store
from tests.support.spark_data import fill
from tests.support.spark_read import bodies, read_with, refusal_of
from tests.support.spark_session import PUSHDOWN, setting

Read = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_store(tmp_path_factory.mktemp("rocketmq"))


@pytest.fixture
def read(spark: SparkSession, root: Path) -> Read:
    return functools.partial(read_with, spark, store=str(root))


@pytest.fixture(scope="module")
def records(root: Path) -> Mapping[int, Line]:
    """What RocketMQ's own decoder says of each record, by its place in the log."""
    return {line["physicalOffset"]: line for line in manifest(root, "record")}


@pytest.fixture(scope="module")
def reached(root: Path, records: Mapping[int, Line]) -> list[Line]:
    """The records of user topics that consume queues reach."""
    units = [unit for unit in manifest(root, "unit") if is_user_topic(unit["topic"])]
    return [records[unit["physicalOffset"]] for unit in units]


def of_row(row: Row) -> str:
    """Return what a row and a line of the manifest both tell."""
    properties: dict[str, str] = row.properties
    assert row.tags == properties.get("TAGS")
    assert row["keys"] == (properties["KEYS"].split(" ") if "KEYS" in properties else [])
    told = [
        *(row.topic, row.queueId, row.queueOffset, row.sysFlag, row.reconsumeTimes, properties),
        *(round(row.bornTimestamp.timestamp() * 1e3), round(row.storeTimestamp.timestamp() * 1e3)),
        # Of a body that is compressed the manifest knows the packed form alone.
        "packed" if row.sysFlag & 1 else zlib.crc32(row.body) & 0x7FFFFFFF,
        row.msgId,
    ]
    return json.dumps(told, sort_keys=True)


def of_line(line: Line) -> str:
    told: list[Any] = [
        *(line["topic"], line["queueId"], line["queueOffset"], line["sysFlag"]),
        *(line["reconsumeTimes"], line["properties"]),
        *(line["bornTimestamp"], line["storeTimestamp"]),
        "packed" if line["sysFlag"] & 1 else line["bodyCrc"],
        line["properties"].get("UNIQ_KEY") or line["msgId"],
    ]
    return json.dumps(told, sort_keys=True)


def test_rocketmqs_store_is_read_row_for_row(read: Read, reached: list[Line]) -> None:
    rows = read().collect()
    assert {row.brokerName for row in rows} == {"store"}
    assert Counter(map(of_row, rows)) == Counter(map(of_line, reached))
    assert {len(row.body) > 1_000 for row in rows if row.sysFlag & 1} == {True}
    assert read(arrow="false").count() == len(reached)


def test_raw_scan_returns_every_record_of_the_log(read: Read, records: Mapping[int, Line]) -> None:
    rows = read(raw="true").collect()
    assert Counter(map(of_row, rows)) == Counter(map(of_line, records.values()))


def test_files_of_the_log_are_read_in_parallel(read: Read, root: Path) -> None:
    files = len(list((root / "commitlog").iterdir()))
    assert files > 1
    assert read(raw="true").rdd.getNumPartitions() == files
    assert read(minPartitions="12").rdd.getNumPartitions() >= 12
    columns = "topic string, queueId int, queueOffset bigint"
    cut = read(columns, minPartitions="12").collect()
    assert Counter(cut) == Counter(read(columns).collect())


def test_topics_queues_and_offsets_can_be_chosen(read: Read, reached: list[Line]) -> None:
    orders = [line for line in reached if line["topic"] == "Orders"]
    columns = "topic string, queueId int, queueOffset bigint"
    assert read(columns, subscribe="Orders").count() == len(orders)
    assert read(columns, subscribePattern="Ord.*").count() == len(orders)
    queue = [line for line in orders if line["queueId"] == 4]
    assigned = {"assign": '{"Orders":["broker-x:4"]}', "brokerName": "broker-x"}
    rows = read("brokerName string, queueId int", **assigned).collect()
    assert {tuple(row) for row in rows} == {("broker-x", 4)}
    assert len(rows) == len(queue)
    offsets = {
        "startingOffsets": '{"Orders":{"broker-x:4":3}}',
        "endingOffsets": '{"Orders":{"broker-x:4":7}}',
    }
    rows = read(columns, **assigned, **offsets).collect()
    assert sorted(row.queueOffset for row in rows) == [3, 4, 5, 6]
    assert read(columns, subscribe="%DLQ%CG_fail").count() > 0


def test_times_can_be_chosen(read: Read, reached: list[Line]) -> None:
    times = sorted(line["storeTimestamp"] for line in reached)
    begin, end = times[len(times) // 3], times[2 * len(times) // 3]
    rows = read(
        "storeTimestamp timestamp", startingTimestamp=str(begin), endingTimestamp=str(end)
    ).collect()
    found = sorted(round(row.storeTimestamp.timestamp() * 1000) for row in rows)
    assert found == [at_ms for at_ms in times if begin <= at_ms < end]


def test_filters_select_rows(read: Read, reached: list[Line]) -> None:
    tags = Counter(line["properties"].get("TAGS") for line in reached)
    assert read("tags string", filter="TagA").count() == tags["TagA"] > 0
    wanted = [line for line in reached if line["properties"].get("region") == "eu"]
    options = {"filter": "region = 'eu'", "filterType": "sql92"}
    assert read("tags string", **options).count() == len(wanted)


def test_pushed_conditions_change_no_result(read: Read, spark: SparkSession) -> None:
    columns = "topic string, queueId int, queueOffset bigint, tags string, keys array<string>, \
        storeTimestamp timestamp"
    conditions = [
        "topic = 'Orders' and queueId in (1, 4)",
        "tags = 'TagA' and queueOffset > 5",
        "tags <> 'TagA'",
        "storeTimestamp >= timestamp'2020-01-01 00:00:00' and keys = array('k1')",
    ]
    for raw in ({}, {"raw": "true"}):
        plain = [read(columns, **raw).where(each).count() for each in conditions]
        with setting(spark, PUSHDOWN, "true"):
            pushing = {"pushdown": "auto", **raw}
            assert [read(columns, **pushing).where(each).count() for each in conditions] == plain


def test_kafka_view_is_available_offline(read: Read, reached: list[Line]) -> None:
    rows = read(view="kafka", subscribe="Orders").collect()
    assert len(rows) == sum(line["topic"] == "Orders" for line in reached)
    assert len({row.partition for row in rows}) == 8


def test_directory_stays_unchanged(read: Read, root: Path) -> None:
    def all_bytes() -> dict[Path, tuple[int, bytes]]:
        files = [path for path in sorted(root.rglob("*")) if path.is_file()]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = all_bytes()
    assert read("topic string").count() > 0
    assert all_bytes() == before


def test_store_of_a_running_broker_can_be_read(spark: SparkSession, dev: ServiceProcess) -> None:
    expected = fill(dev.nameserver, "OfflineAlive", 100)
    found = sorted(dev.data.rglob("commitlog"))
    rows = read_with(spark, store=str(found[0].parent), subscribe="OfflineAlive").collect()
    assert bodies(rows) == sorted(expected)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"store": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"store": "/etc"}, "/etc"),
        ({"subscribe": "Nowhere"}, "Nowhere"),
        ({"assign": '{"Orders":["broker-x:4"]}'}, "assign"),
        ({"startingOffsetsByTimestamp": '{"Orders":{"store:4":3}}'}, "startingOffsetsByTimestamp"),
        ({"nameserver": "127.0.0.1:9876"}, "nameserver"),
        ({"raw": "true", "subscribe": "Orders"}, "subscribe"),
        ({"raw": "true", "minPartitions": "4"}, "minPartitions"),
        ({"brokerName": "../x"}, "brokerName"),
    ],
)
def test_unfit_options_are_refused_by_name(
    spark: SparkSession, root: Path, options: dict[str, str], told: str
) -> None:
    assert told in refusal_of(spark, **({"store": str(root)} | options))
