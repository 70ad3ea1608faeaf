"""Queues that come and go while a stream runs."""

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from ternmq_model.queue import MessageQueue
from tests.support.processes import ServiceProcess, running_broker, running_cluster
from tests.support.spark_data import delete_topic, make_topic
from tests.support.stream_runs import Sent, alter_topic, arrived, clean, run, source, start

OFTEN = {"processingTime": "100 milliseconds"}


def test_added_queues_and_brokers_are_read_from_their_beginning(
    spark: SparkSession, tmp_path: Path
) -> None:
    with running_cluster(tmp_path / "cluster", ("broker-a",)) as nameserver:
        make_topic(nameserver, "Grows", 1)
        sent = Sent(nameserver)
        sent.send("Grows", 5)
        query = start(source(spark, nameserver, subscribePattern="Gro.*"), tmp_path, **OFTEN)
        try:
            query.processAllAvailable()
            alter_topic(nameserver, "Grows", queues=3)
            sent.send("Grows", 4, queue=MessageQueue("Grows", "broker-a", 2))
            query.processAllAvailable()
            with running_broker(tmp_path / "cluster" / "broker-b", nameserver):
                alter_topic(nameserver, "Grows", queues=3)
                make_topic(nameserver, "GrowsToo", 1)
                for queue_id in range(3):
                    sent.send("Grows", 3, queue=MessageQueue("Grows", "broker-b", queue_id))
                sent.send("GrowsToo", 2)
                for _ in range(3):
                    query.processAllAvailable()
        finally:
            query.stop()
    assert arrived(spark, tmp_path) == sent.places


def test_deleted_topic_is_a_loss_and_the_others_are_read_on_when_tolerated(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    for topic in ("DeletedSoon", "StaysHere"):
        make_topic(dev.nameserver, topic, 1)
    sent = Sent(dev.nameserver)
    sent.send("DeletedSoon", 3)
    sent.send("StaysHere", 3)
    options = {"subscribe": "DeletedSoon,StaysHere"}
    run(source(spark, dev.nameserver, **options), tmp_path)
    delete_topic(dev.nameserver, "DeletedSoon")
    sent.send("StaysHere", 2)
    with pytest.raises(StreamingQueryException) as caught:
        run(source(spark, dev.nameserver, **options), tmp_path)
    said = "topic DeletedSoon, broker .*, queue 0: it does not exist any more; offset 3"
    assert caught.match(said)
    run(source(spark, dev.nameserver, **options, failOnDataLoss="false"), tmp_path)
    assert arrived(spark, tmp_path) == sent.places
    make_topic(dev.nameserver, "DeletedSoon", 1)
    anew = Sent(dev.nameserver)
    anew.send("DeletedSoon", 2)
    run(source(spark, dev.nameserver, **options), tmp_path)
    assert arrived(spark, tmp_path) == sent.places + anew.places


def test_topic_created_again_with_more_messages_loses_no_row_silently(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "CreatedAgain", 1)
    sent = Sent(dev.nameserver)
    sent.send("CreatedAgain", 3)
    frame = source(spark, dev.nameserver, subscribe="CreatedAgain")
    run(frame, tmp_path)
    assert arrived(spark, tmp_path) == sent.places
    delete_topic(dev.nameserver, "CreatedAgain")
    make_topic(dev.nameserver, "CreatedAgain", 1)
    anew = Sent(dev.nameserver)
    anew.send("CreatedAgain", 5)
    with pytest.raises(StreamingQueryException) as caught:
        run(frame, tmp_path)
    assert caught.match("topic CreatedAgain, broker .*, queue 0: its topic was deleted and created")
    tolerant = source(spark, dev.nameserver, subscribe="CreatedAgain", failOnDataLoss="false")
    run(tolerant, tmp_path)
    assert arrived(spark, tmp_path) == sent.places + anew.places
    anew.send("CreatedAgain", 2)
    run(frame, tmp_path)
    assert arrived(spark, tmp_path) == sent.places + anew.places


def test_returning_queues_are_read_on_where_they_were(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "Shrinks", 2)
    sent = Sent(dev.nameserver)

    def run_with(**options: str) -> None:
        run(source(spark, dev.nameserver, subscribe="Shrinks", **options), tmp_path)

    sent.send("Shrinks", 10)
    run_with()
    alter_topic(dev.nameserver, "Shrinks", queues=1)
    sent.send("Shrinks", 4)
    with pytest.raises(StreamingQueryException, match="queue 1: it does not exist any more"):
        run_with()
    run_with(failOnDataLoss="false")
    alter_topic(dev.nameserver, "Shrinks", queues=2)
    sent.send("Shrinks", 6)
    run_with()
    assert arrived(spark, tmp_path) == sent.places


def test_retention_overtaking_a_stream_is_an_error_naming_queue_and_offsets(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "Overtaken", 1)
    sent = Sent(dev.nameserver)
    sent.send("Overtaken", 3)
    run(source(spark, dev.nameserver, subscribe="Overtaken"), tmp_path)
    read = sent.places.copy()
    sent.send("Overtaken", 4)
    alter_topic(dev.nameserver, "Overtaken", queues=1, retention_ms=1)
    clean(dev.nameserver, [dev.broker_name])
    alter_topic(dev.nameserver, "Overtaken", queues=1)
    kept = Sent(dev.nameserver)
    kept.send("Overtaken", 2)
    with pytest.raises(StreamingQueryException) as caught:
        run(source(spark, dev.nameserver, subscribe="Overtaken"), tmp_path)
    said = f"topic Overtaken, broker {dev.broker_name}, queue 0: offsets 3 to 6 are no longer kept"
    assert caught.match(said)
    going_on = source(spark, dev.nameserver, subscribe="Overtaken", failOnDataLoss="false")
    run(going_on, tmp_path)
    assert arrived(spark, tmp_path) == read + kept.places


def test_available_now_run_ends_although_queues_come_and_go(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    for topic in ("NowKept", "NowDeleted"):
        make_topic(dev.nameserver, topic, 2)
    sent = Sent(dev.nameserver)
    sent.send("NowKept", 20)
    sent.send("NowDeleted", 20)
    options = {"subscribePattern": "Now.*", "maxOffsetsPerTrigger": 7, "failOnDataLoss": "false"}
    query = start(source(spark, dev.nameserver, **options), tmp_path)
    while not query.recentProgress:
        query.awaitTermination(1)
    query.stop()
    delete_topic(dev.nameserver, "NowDeleted")
    alter_topic(dev.nameserver, "NowKept", queues=4)
    sent.send("NowKept", 8)
    run(source(spark, dev.nameserver, **options), tmp_path)
    run(source(spark, dev.nameserver, **options), tmp_path)
    found = arrived(spark, tmp_path)
    assert max(found.values()) == 1
    kept = {place for place in sent.places if place[0] == "NowKept"}
    assert {place for place in found if place[0] == "NowKept"} == kept
