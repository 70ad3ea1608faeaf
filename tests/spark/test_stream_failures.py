"""Brokers and executors that die, and retention that comes, while a batch is read."""

import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from ternmq_pipeline.source.tasks.partition_reader import ROWS_SETTING
from tests.support.processes import ServiceProcess, running_broker, running_nameserver
from tests.support.spark_data import make_topic
from tests.support.spark_session import executor_pids, kill, setting
from tests.support.stream_gate import Gate
from tests.support.stream_runs import (
    PLACE,
    RUN_WITHIN_S,
    Sent,
    alter_topic,
    arrived,
    batches,
    clean,
    run,
    source,
    start,
)

BODY = bytes(10_000)
"""So large that what Spark's processes hold between them is a small part of a batch."""

SMALL_BATCHES = "50"
"""Rows that Spark hands the gate at once. By default they are all of a partition, read by then."""

COUNT = 3_000
SCHEMA = "topic string, brokerName string, queueId int, queueOffset long"


def test_broker_killed_and_returning_in_mid_batch_loses_no_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    with running_nameserver(tmp_path / "nameserver") as names:
        address, folder = names.nameserver, tmp_path / "broker-a"
        gate = Gate(tmp_path)
        with running_broker(folder, address) as first:
            make_topic(address, "BrokerDies", 2)
            sent = Sent(address)
            sent.send("BrokerDies", COUNT, body=BODY)
            frame = source(spark, address, subscribe="BrokerDies")
            held = frame.select(*PLACE, "body").mapInArrow(gate.step(), SCHEMA + ", body binary")
            with setting(spark, ROWS_SETTING, SMALL_BATCHES):
                query = start(held.drop("body"), tmp_path)
            gate.wait()
            first.kill()
        port = first.broker.rpartition(":")[2]
        with running_broker(folder, address, port=port) as second:
            gate.open()
            assert query.awaitTermination(RUN_WITHIN_S)
            assert [each.numInputRows for each in batches(query)] == [COUNT]
            assert arrived(spark, tmp_path) == sent.places
            second.kill()
        frame = source(spark, address, subscribe="BrokerDies", retryTimeout="3s")
        with pytest.raises(StreamingQueryException, match="broker-a"):
            run(frame, tmp_path)


def test_executor_killed_in_mid_batch_neither_loses_nor_doubles_rows(
    spark_cluster: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "ExecutorDies", 2)
    sent = Sent(dev.nameserver)
    sent.send("ExecutorDies", COUNT, body=BODY)
    gate = Gate(tmp_path)
    frame = source(spark_cluster, dev.nameserver, subscribe="ExecutorDies")
    held = frame.select(*PLACE, "body").mapInArrow(gate.step(), SCHEMA + ", body binary")
    with setting(spark_cluster, ROWS_SETTING, SMALL_BATCHES):
        query = start(held.drop("body"), tmp_path)
    gate.wait()
    kill(executor_pids()[0])
    gate.open()
    assert query.awaitTermination(RUN_WITHIN_S)
    assert arrived(spark_cluster, tmp_path) == sent.places


def overtake(dev: ServiceProcess, topic: str) -> Sent:
    """Let retention take all that `topic` has, and send some more; return that."""
    alter_topic(dev.nameserver, topic, queues=1, retention_ms=1)
    clean(dev.nameserver, [dev.broker_name])
    alter_topic(dev.nameserver, topic, queues=1)
    sent = Sent(dev.nameserver)
    sent.send(topic, 5)
    return sent


def test_retention_overtaking_planned_tasks_is_an_error_naming_it(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "TaskTooLate", 1)
    Sent(dev.nameserver).send("TaskTooLate", 60)
    gate = Gate(tmp_path)
    # One or two tasks stand at the gate; the last one begins when one of them is done.
    frame = source(spark, dev.nameserver, subscribe="TaskTooLate", maxRecordsPerPartition=20)
    query = start(frame.select(*PLACE).mapInArrow(gate.step(), SCHEMA), tmp_path)
    gate.wait()
    overtake(dev, "TaskTooLate")
    gate.open()
    which = "(0 to 19|20 to 39|40 to 59)"
    said = (
        f"topic TaskTooLate, broker {dev.broker_name}, queue 0: offsets {which} are no longer kept"
    )
    with pytest.raises(StreamingQueryException, match=said):
        query.awaitTermination(RUN_WITHIN_S)


def test_retention_overtaking_a_task_loses_only_expired_rows_when_tolerated(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "TaskOvertaken", 1)
    sent = Sent(dev.nameserver)
    # More than two sockets hold, whose buffers grow to 32 MiB while a reader stands.
    sent.send("TaskOvertaken", COUNT, body=random.Random(1).randbytes(4 * len(BODY)))
    gate = Gate(tmp_path)
    # As records: for a scan the broker would keep what is still to be read.
    options = {"subscribe": "TaskOvertaken", "scan": "never", "failOnDataLoss": "false"}
    frame = source(spark, dev.nameserver, **options)
    held = frame.select(*PLACE, "body").mapInArrow(gate.step(), SCHEMA + ", body binary")
    with setting(spark, ROWS_SETTING, SMALL_BATCHES):
        query = start(held.drop("body"), tmp_path)
    gate.wait()
    left = overtake(dev, "TaskOvertaken")
    gate.open()
    assert query.awaitTermination(RUN_WITHIN_S)
    run(frame, tmp_path)
    found = arrived(spark, tmp_path)
    read = sum(found.values()) - sum(left.places.values())
    assert 0 < read < COUNT
    assert found == Counter(sorted(sent.places)[:read]) + left.places
