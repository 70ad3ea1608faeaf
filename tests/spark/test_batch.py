import functools
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from ternmq_model.message import Message
from ternmq_pipeline.planning.partition_numbers import partition_number
from tests.support.processes import ServiceProcess
from tests.support.spark_data import delete_topic, fill, make_topic, send
from tests.support.spark_read import bodies, read_with, refusal_of
from tests.support.spark_session import PUSHDOWN, setting

COUNT = 500
EXPECTED = [b"message-%06d" % n for n in range(COUNT)]

Read = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def topic(dev: ServiceProcess) -> str:
    fill(dev.nameserver, "BatchRead", COUNT, queues=3)
    return "BatchRead"


@pytest.fixture
def read(spark: SparkSession, dev: ServiceProcess, topic: str) -> Read:
    return functools.partial(read_with, spark, nameserver=dev.nameserver, subscribe=topic)


@pytest.mark.parametrize("options", [{}, {"scan": "never"}, {"arrow": "false"}])
def test_row_equals_its_message(
    read: Read, dev: ServiceProcess, topic: str, options: dict[str, str]
) -> None:
    now = datetime.now(UTC)
    rows = read(**options).collect()
    assert bodies(rows) == EXPECTED
    row = next(row for row in rows if bytes(row.body) == b"message-000007")
    assert (row.topic, row.brokerName) == (topic, dev.broker_name)
    assert (row.tags, row["keys"]) == ("odd", ["k7"])
    assert row.properties["n"] == "7"
    assert row.properties["UNIQ_KEY"] == row.msgId
    assert "__CRC32#" not in row.properties
    assert (row.reconsumeTimes, row.sysFlag) == (0, 0)
    assert row.bornHost.startswith("127.0.0.1:")
    assert abs(row.storeTimestamp.astimezone(UTC) - now).total_seconds() < 600
    assert row.bornTimestamp <= row.storeTimestamp
    places = {(row.queueId, row.queueOffset) for row in rows}
    assert len(places) == COUNT
    assert {queue for queue, _ in places} == {0, 1, 2}


def test_message_without_tag_keys_and_properties_has_none(
    spark: SparkSession, dev: ServiceProcess
) -> None:
    make_topic(dev.nameserver, "BatchBare", 1)
    send(dev.nameserver, [Message("BatchBare", b"")])
    options = {"nameserver": dev.nameserver, "subscribe": "BatchBare"}
    (row,) = read_with(spark, **options).collect()
    assert (bytes(row.body), row.tags, row["keys"]) == (b"", None, [])
    (row,) = read_with(spark, view="kafka", **options).collect()
    assert (bytes(row.value), row.key) == (b"", None)


def test_narrower_schema_reads_those_columns_in_its_order(read: Read) -> None:
    frame = read("body binary, queueOffset bigint")
    assert frame.columns == ["body", "queueOffset"]
    assert bodies(frame.collect()) == EXPECTED


def test_schema_may_forbid_nulls(read: Read, spark: SparkSession) -> None:
    schema = StructType([StructField("queueId", IntegerType(), nullable=False)])
    assert read(schema).count() == COUNT
    schema = StructType([StructField("tags", StringType(), nullable=False)])


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("body binary, offset bigint", "'offset'"),
        ("Body binary", "'body'"),
        ("body string", "'body' is of type binary, not string"),
        ("queueId bigint", "'queueId' is of type int"),
        ("keys array<int>", "'keys'"),
        ("body binary, body binary", "body"),
    ],
)
def test_unfit_schema_is_refused_by_column_name(
    spark: SparkSession, dev: ServiceProcess, topic: str, schema: str, told: str
) -> None:
    assert told in refusal_of(spark, schema, nameserver=dev.nameserver, subscribe=topic)


def test_rows_are_counted_and_conditions_hold_without_pushdown(read: Read) -> None:
    assert read().count() == COUNT
    assert read().where("queueId = 1 and tags = 'odd'").count() > 0
    assert read().where("array_contains(keys, 'k3')").count() == 1
    assert read().limit(3).count() == 3


def test_frame_reads_the_same_each_time(read: Read, dev: ServiceProcess) -> None:
    make_topic(dev.nameserver, "BatchGrows", 1)
    send(dev.nameserver, [Message("BatchGrows", b"first")])
    frame = read(subscribe="BatchGrows")
    assert frame.count() == 1
    send(dev.nameserver, [Message("BatchGrows", b"second")])
    assert frame.count() == 1
    assert read(subscribe="BatchGrows").count() == 2


def test_topic_created_again_between_planning_and_reading_is_an_error_by_default(
    read: Read, dev: ServiceProcess
) -> None:
    fill(dev.nameserver, "BatchGone", 10, queues=1)
    strict = read("body binary", subscribe="BatchGone")
    lenient = read("body binary", subscribe="BatchGone", failOnDataLoss="false")
    assert (strict.count(), lenient.count()) == (10, 10)
    delete_topic(dev.nameserver, "BatchGone")
    fill(dev.nameserver, "BatchGone", 12, queues=1)
    with pytest.raises(PySparkException) as caught:
        strict.collect()
    for told in ("topic BatchGone", "queue 0", "deleted and created again", "failOnDataLoss"):
        assert told in str(caught.value)
    assert lenient.collect() == []


def test_kafka_view_has_the_columns_of_kafkas_source(
    read: Read, dev: ServiceProcess, topic: str
) -> None:
    frame = read(view="kafka", includeHeaders="true")
    assert frame.columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    ]
    rows = frame.collect()
    assert sorted(bytes(row.value) for row in rows) == EXPECTED
    row = next(row for row in rows if bytes(row.value) == b"message-000007")
    assert (bytes(row.key), row.topic, row.timestampType) == (b"k7", topic, 1)
    assert row.partition in {partition_number(dev.broker_name, queue) for queue in range(3)}
    headers = {header.key: bytes(header.value) for header in row.headers}
    assert headers["n"] == b"7"
    assert headers["TAGS"] == b"odd"
    assert read("value binary", view="kafka").count() == COUNT


def test_empty_topic_has_columns_and_no_rows(read: Read, dev: ServiceProcess) -> None:
    make_topic(dev.nameserver, "BatchEmpty", 2)
    frame = read(subscribe="BatchEmpty")
    assert frame.collect() == []
    assert len(frame.columns) == 14


def test_missing_topic_is_refused_by_name(spark: SparkSession, dev: ServiceProcess) -> None:
    assert "BatchNowhere" in refusal_of(spark, nameserver=dev.nameserver, subscribe="BatchNowhere")


def test_absent_nameserver_is_reported(spark: SparkSession) -> None:
    options = {"nameserver": "127.0.0.1:1", "retryTimeout": "1s", "subscribe": "T"}
    assert "127.0.0.1:1" in refusal_of(spark, **options)


CONDITIONS = [
    "queueId = 1",
    "queueId <> 1",
    "queueId in (0, 2) and tags = 'even'",
    "queueId is not null and not (queueId in (0, null))",
    "queueOffset >= 10 and queueOffset < 20",
    "queueOffset in (3, 5) or queueId = 2",
    "tags = 'odd'",
    "tags <> 'odd'",
    "tags is null",
    "tags in ('odd', 'other', null)",
    "tags <=> null",
    "keys = array('k3')",
    "array_contains(keys, 'k3') and topic = 'BatchRead'",
    "topic = 'Other'",
    "storeTimestamp > timestamp'2020-01-01 00:00:00' and tags = 'even' and queueOffset < 7",
    "storeTimestamp < timestamp'2020-01-01 00:00:00'",
    "brokerName like 'no%'",
    "properties['n'] = '12' and queueOffset < 100",
]

SELECTED_HERE = [CONDITIONS[place] for place in (5, 9, 11, 14, 15)]
"""What a reader of records selects itself."""


def test_pushed_conditions_change_no_result(read: Read, spark: SparkSession) -> None:
    narrow = "topic string, brokerName string, queueId int, queueOffset bigint, tags string, \
        keys array<string>, storeTimestamp timestamp, properties map<string,string>, body binary"

    def results(conditions: list[str], **options: str) -> dict[str, list[bytes]]:
        return {each: bodies(read(narrow, **options).where(each).collect()) for each in conditions}

    rows = read(narrow).collect()
    everything = spark.createDataFrame(rows, read(narrow).schema).cache()
    plain = {each: bodies(everything.where(each).collect()) for each in CONDITIONS}
    with setting(spark, PUSHDOWN, "true"):
        assert results(CONDITIONS, pushdown="auto") == plain
        pulled = results(SELECTED_HERE, scan="never", pushdown="auto")
    assert pulled == {each: plain[each] for each in SELECTED_HERE}
    assert 0 < len(plain["queueId = 1"]) < COUNT
    assert len(plain["keys = array('k3')"]) == 1


def test_pushed_conditions_save_work(read: Read, spark: SparkSession) -> None:
    with setting(spark, PUSHDOWN, "true"):
        for choice in ("auto", "true"):
            found = read(pushdown=choice).where("queueId = 1")
            assert found.rdd.getNumPartitions() == 1
        plan = read(pushdown="auto").where("queueId = 1 and queueOffset < 5")
        assert "Filter (" not in plan._jdf.queryExecution().executedPlan().toString()  # pyright: ignore
        assert read(pushdown="false").where("queueId = 1").rdd.getNumPartitions() == 3
    assert read(pushdown="auto").where("queueId = 1").rdd.getNumPartitions() == 3


def test_frame_without_pushdown_serves_any_number_of_queries(
    read: Read, spark: SparkSession
) -> None:
    frame = read("queueId int, body binary")
    with setting(spark, PUSHDOWN, "true"):
        one, another = frame.where("queueId = 0"), frame.where("queueId <> 0")
        assert bodies(one.union(another).collect()) == EXPECTED
        assert 0 < another.count() < COUNT
        assert frame.count() == COUNT
        assert frame.where("queueId = 0 or length(body) > 0").count() == COUNT


def test_pushdown_forbidden_by_spark_is_refused(
    spark: SparkSession, dev: ServiceProcess, topic: str
) -> None:
    options = {"nameserver": dev.nameserver, "subscribe": topic, "pushdown": "true"}
    assert PUSHDOWN in refusal_of(spark, **options)


FRESH = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
options = {"nameserver": sys.argv[1], "subscribe": "BatchRead"}
print("rows", spark.read.format("ternmq").options(**options).load().count())
"""


def test_format_is_known_without_registration(
    sessions: object, dev: ServiceProcess, topic: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(FRESH)
    found = subprocess.run(
        [sys.executable, program, dev.nameserver],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert f"rows {COUNT}" in found.stdout, found.stderr
