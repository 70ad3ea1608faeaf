"""The options of a batch read, one by one, through Spark."""

import functools
import json
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from ternmq_model.message import Message
from tests.support.processes import ServiceProcess
from tests.support.spark_data import fill, make_topic, send
from tests.support.spark_read import bodies, read_with, refusal_of

TOPIC = "BatchOptions"
COUNT = 120
QUEUES = 3
EACH = COUNT // QUEUES

Read = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def topic(dev: ServiceProcess) -> str:
    fill(dev.nameserver, TOPIC, COUNT, queues=QUEUES)
    fill(dev.nameserver, TOPIC + "Too", 10, queues=1, begin=1_000)
    make_topic(dev.nameserver, "%DLQ%batch-options", queues=1)
    send(dev.nameserver, [Message("BatchOptionsDead", b"x")])
    return TOPIC


@pytest.fixture
def read(spark: SparkSession, dev: ServiceProcess, topic: str) -> Read:
    assert topic
    return functools.partial(
        read_with,
        spark,
        "queueId int, queueOffset bigint, body binary, storeTimestamp timestamp",
        nameserver=dev.nameserver,
    )


def at_each(broker_name: str, *numbers: int, topic: str = TOPIC) -> str:
    """Return JSON with a number for each queue."""
    return json.dumps({topic: {f"{broker_name}:{queue}": n for queue, n in enumerate(numbers)}})


def places(frame: DataFrame) -> dict[int, list[int]]:
    """Return the offsets of each queue, sorted."""
    found: dict[int, list[int]] = {}
    for row in frame.select("queueId", "queueOffset").collect():
        found.setdefault(row.queueId, []).append(row.queueOffset)
    return {queue: sorted(offsets) for queue, offsets in sorted(found.items())}


def test_offset_options_set_where_a_batch_begins_and_ends(read: Read, dev: ServiceProcess) -> None:
    name = dev.broker_name
    found = read(
        subscribe=TOPIC,
        startingOffsets=at_each(name, 5, -2, -1),
        endingOffsets=at_each(name, 9, 3, -1),
    )
    assert places(found) == {0: [5, 6, 7, 8], 1: [0, 1, 2]}


def test_time_options_set_where_a_batch_begins_and_ends(read: Read, dev: ServiceProcess) -> None:
    whole = read(subscribe=TOPIC)
    stored_ms = sql.unix_millis("storeTimestamp")
    (times,) = whole.agg(sql.min(stored_ms).alias("a"), sql.max(stored_ms).alias("b")).collect()
    first_ms, last_ms = int(times.a), int(times.b)
    everything = read(
        subscribe=TOPIC, startingTimestamp=str(first_ms), endingTimestamp=str(last_ms + 1)
    )
    assert everything.count() == COUNT
    assert read(subscribe=TOPIC, endingTimestamp=str(first_ms)).count() == 0
    later = {"startingTimestamp": str(last_ms + 60_000)}
    latest = read(subscribe=TOPIC, startingOffsetsByTimestampStrategy="latest", **later)
    assert latest.count() == 0
    name = dev.broker_name
    backwards = read(
        subscribe=TOPIC,
        startingOffsetsByTimestamp=at_each(name, 0, last_ms + 1, last_ms + 1),
        startingOffsetsByTimestampStrategy="latest",
        endingOffsetsByTimestamp=at_each(name, last_ms + 1, 0, last_ms + 1),
    )
    with pytest.raises(
        Exception, match=rf"{TOPIC}@{name}:1: the batch begins with offset {EACH} and ends before 0"
    ):
        backwards.count()
    one_queue = read(
        subscribe=TOPIC,
        startingOffsetsByTimestamp=at_each(name, 0, last_ms + 1, last_ms + 1),
        startingOffsetsByTimestampStrategy="latest",
        endingOffsetsByTimestamp=at_each(name, *[last_ms + 1] * QUEUES),
    )
    assert places(one_queue) == {0: list(range(EACH))}


def test_topics_are_chosen_by_name_pattern_or_queue(read: Read, dev: ServiceProcess) -> None:
    assert read(subscribe=f"{TOPIC}, {TOPIC}Too").count() == COUNT + 10
    assert read(subscribePattern=f"{TOPIC}(Too)?").count() == COUNT + 10
    assert read(subscribePattern=f"{TOPIC}To").count() == 0
    assert read(subscribePattern=".*batch-options").count() == 0
    queues = json.dumps({TOPIC: [f"{dev.broker_name}:1"]})
    assert places(read(assign=queues)) == {1: list(range(EACH))}
    assert read(subscribe="%DLQ%batch-options").count() == 0


def test_partition_options_set_number_and_length(read: Read) -> None:
    def partitions(**options: str) -> int:
        return read(subscribe=TOPIC, **options).rdd.getNumPartitions()

    assert partitions() == QUEUES
    assert partitions(minPartitions="7") == 7
    assert partitions(maxRecordsPerPartition="10") == COUNT // 10
    cut = read(subscribe=TOPIC, minPartitions="7", maxRecordsPerPartition="11", batchRows="3")
    assert places(cut) == {queue: list(range(EACH)) for queue in range(QUEUES)}


@pytest.mark.parametrize("scan", ["auto", "never"])
def test_filters_are_applied_before_messages_are_sent(read: Read, scan: str) -> None:
    odd = [b"message-%06d" % number for number in range(1, COUNT, 2)]
    assert bodies(read(subscribe=TOPIC, filter="odd", scan=scan).collect()) == odd
    both = read(subscribe=TOPIC, filter="odd || even", scan=scan)
    assert both.count() == COUNT
    some = read(subscribe=TOPIC, filter="n > 9 AND n < 12", filterType="sql92", scan=scan)
    assert bodies(some.collect()) == [b"message-000010", b"message-000011"]


def test_offsets_beyond_the_queue_are_an_error_unless_tolerated(
    spark: SparkSession, read: Read, dev: ServiceProcess
) -> None:
    far = at_each(dev.broker_name, 0, 0, COUNT)
    told = refusal_of(spark, nameserver=dev.nameserver, subscribe=TOPIC, startingOffsets=far)
    for part in (f"topic {TOPIC}", f"broker {dev.broker_name}", "queue 2", f"offset {COUNT}"):
        assert part in told
    assert "failOnDataLoss=false" in told
    found = read(subscribe=TOPIC, startingOffsets=far, failOnDataLoss="false")
    assert places(found) == {queue: list(range(EACH)) for queue in range(2)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "one of the options subscribe, subscribePattern, assign must be given"),
        ({"subscribe": "../../x"}, "subscribe="),
        ({"subscribe": "A", "assign": "{}"}, "subscribe and assign"),
        ({"subscribePattern": "("}, "subscribePattern="),
        ({"subscribe": "A", "startingOfsets": "earliest"}, "did you mean 'startingOffsets'?"),
        ({"subscribe": "A", "startingOffsets": '{"A":{"b:0":NaN}}'}, "startingOffsets="),
        ({"subscribe": "A", "startingOffsets": "latest"}, "startingOffsets="),
        ({"subscribe": "A", "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger="),
        ({"subscribe": "A", "minPartitions": "-1"}, "minPartitions="),
        ({"subscribe": "A", "failOnDataLoss": "perhaps"}, "failOnDataLoss="),
        ({"subscribe": "A", "filter": "a >", "filterType": "sql92"}, "filter="),
        ({"subscribe": "A", "view": "avro"}, "view="),
        ({"subscribe": "A", "kafka.bootstrap.servers": "x:1"}, "nameserver"),
    ],
)
def test_hostile_options_are_refused_by_name(
    spark: SparkSession, options: dict[str, str], told: str
) -> None:
    assert told in refusal_of(spark, **options)


def test_path_option_is_refused(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="a read has no path"):
        spark.read.format("ternmq").option("subscribe", "A").load("/somewhere").collect()
