"""Tasks, executors, drivers and brokers die while rows are written."""

from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.processes import ServiceProcess, running_broker, running_dev, running_nameserver
from tests.support.sink_doubles import (
    HalfwaySource,
    fails_at,
    is_reached,
    open_gate,
    stops_at,
)
from tests.support.sink_driver import WAIT, Task, kill_driver, sink_driver, write_files
from tests.support.spark_data import make_topic
from tests.support.spark_session import executor_pids, kill
from tests.support.spark_sink import (
    bodies,
    eventually,
    halves,
    numbers,
    read_topic,
    waiting_halves,
    write_beside,
)

DRIVER_ENDS_WITHIN_S = 240


def put_file(folder: Path, name: str, lines: list[str]) -> None:
    """Give the driver a file: one batch."""
    (folder / "input").mkdir(exist_ok=True)
    (folder / "input" / name).write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def own(tmp_path: Path) -> Generator[ServiceProcess]:
    """A NameServer and a broker of the test's own."""
    with running_dev(tmp_path) as running:
        yield running


def test_retried_task_is_written_once(spark_cluster: SparkSession, own: ServiceProcess) -> None:
    make_topic(own.nameserver, "retried")
    frame = numbers(spark_cluster, 6).select(fails_at(F.col("body"), "5", attempts=2).alias("body"))
    options = {"nameserver": own.nameserver, "topic": "retried"}
    frame.write.format("ternmq").options(**options).mode("append").save()
    assert bodies(own.nameserver, "retried") == list("012345")


def test_killed_executor_leaves_the_whole_batch_once(
    spark_cluster: SparkSession, own: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(own.nameserver, "executor")
    gate = tmp_path / "gate"
    frame = numbers(spark_cluster, 6).select(stops_at(F.col("body"), "5", gate).alias("body"))
    with ThreadPoolExecutor(1) as pool:
        options = {"nameserver": own.nameserver, "topic": "executor"}
        done = write_beside(pool, frame, "ternmq", **options)
        eventually(lambda: is_reached(gate), "a task waits", beside=done)
        eventually(lambda: waiting_halves(own.nameserver) == 3, "the other has staged")
        for pid in executor_pids():
            kill(pid)
        assert bodies(own.nameserver, "executor") == []
        open_gate(gate)
        done.result(100)
    assert bodies(own.nameserver, "executor") == list("012345")


def test_driver_killed_before_its_commit_leaves_no_visible_rows(
    spark: SparkSession, own: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(own.nameserver, "driver")
    rows = [*(f"row-{number}" for number in range(12)), WAIT]
    put_file(tmp_path, "0", rows)
    task = Task(
        nameserver=own.nameserver, topic="driver", folder=str(tmp_path), staging_timeout="3"
    )
    with sink_driver(task) as driver:
        eventually(lambda: is_reached(task.gate), "a task waits in the middle")
        eventually(lambda: sum(halves(own.nameserver)) > 0, "the other has staged")
        kill_driver(driver)
    open_gate(task.gate)
    eventually(lambda: waiting_halves(own.nameserver) == 0, "what it staged is rolled back")
    assert halves(own.nameserver).rolled_back > 0
    assert bodies(own.nameserver, "driver") == []
    write_files(spark, replace(task, staging_timeout="3600"))
    assert bodies(own.nameserver, "driver") == sorted(rows)


def test_driver_killed_in_its_commit_repeats_the_batch_whole(
    spark: SparkSession, own: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(own.nameserver, "halfway")
    rows = [f"row-{number}" for number in range(20)]
    put_file(tmp_path, "0", rows)
    task = Task(nameserver=own.nameserver, topic="halfway", folder=str(tmp_path), halfway=True)
    with sink_driver(task) as driver:
        assert driver.wait(DRIVER_ENDS_WITHIN_S) < 0
    assert len(bodies(own.nameserver, "halfway")) == 10
    open_gate(task.gate)  # the process that commits may outlive its driver, and go on at any time
    put_file(tmp_path, "1", ["more"])
    write_files(spark, replace(task, halfway=False))
    found = read_topic(own.nameserver, "halfway")
    counts = Counter(message.body.decode() for message in found)
    assert set(counts) == {*rows, "more"}
    assert set(counts.values()) == {1, 2}
    twice = {row for row, count in counts.items() if count == 2}
    assert len(twice) >= 10
    assert "more" not in twice
    assert len({message.properties["SPARK_QUERY"] for message in found}) == 1
    of_first = [message for message in found if message.properties["SPARK_BATCH"] == "0"]
    assert {message.body.decode() for message in of_first} == set(rows)
    assert {message.properties["SPARK_BATCH"] for message in found} == {"0", "1"}
    doubled = [message for message in of_first if message.body.decode() in twice]
    places = {
        tuple(message.properties[f"SPARK_{n}"] for n in ("PARTITION", "ROW")) for message in doubled
    }
    assert len(places) == len(twice)


@pytest.mark.parametrize("moment", ["staging", "commit"])
def test_restarted_broker_loses_no_row_and_shows_none_early(
    spark: SparkSession, tmp_path: Path, moment: str
) -> None:
    gate = tmp_path / "gate"
    frame = numbers(spark, 600)
    options = {"topic": "broker", "retryTimeout": "60s"}
    name = "ternmq" if moment == "staging" else "halfway"
    if moment == "staging":
        frame = frame.select(stops_at(F.col("body"), "599", gate).alias("body"))
    else:
        spark.dataSource.register(HalfwaySource)
        options["gate"] = str(gate)
    with ThreadPoolExecutor(1) as pool, running_nameserver(tmp_path / "nameserver") as names:
        nameserver = names.nameserver
        with running_broker(tmp_path / "broker-a", nameserver) as first:
            make_topic(nameserver, "broker")
            done = write_beside(pool, frame, name, nameserver=nameserver, **options)
            eventually(lambda: is_reached(gate), "the write is in the middle", beside=done)
            if moment == "staging":
                eventually(lambda: waiting_halves(nameserver) == 300, "a task has staged")
            visible = bodies(nameserver, "broker")
            assert len(visible) == (0 if moment == "staging" else 300)
            first.kill()
        open_gate(gate)  # who goes on finds nobody, for as long as a broker takes to start
        port = first.broker.rpartition(":")[2] if moment == "staging" else "0"
        with running_broker(tmp_path / "broker-a", nameserver, port=port):
            done.result(100)
            assert bodies(nameserver, "broker") == sorted(map(str, range(600)))
            assert waiting_halves(nameserver) == 0


def test_commit_with_an_absent_broker_reports_how_much_is_visible(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(HalfwaySource)
    gate = tmp_path / "gate"
    options = {"topic": "away", "gate": str(gate), "retryTimeout": "1s", "requestTimeout": "1s"}
    with ThreadPoolExecutor(1) as pool, running_nameserver(tmp_path / "nameserver") as names:
        nameserver = names.nameserver
        with running_broker(tmp_path / "broker-a", nameserver) as broker:
            make_topic(nameserver, "away")
            frame = numbers(spark, 40)
            done = write_beside(pool, frame, "halfway", nameserver=nameserver, **options)
            eventually(lambda: is_reached(gate), "half of it is committed", beside=done)
            broker.kill()
        open_gate(gate)
        with pytest.raises(Exception, match="20 of 40 rows are visible, 20 are not confirmed"):
            done.result(60)
        done = write_beside(
            pool, frame, "ternmq", nameserver=nameserver, topic="away", retryTimeout="1s"
        )
        with pytest.raises(Exception, match="20 of 20 messages not staged"):
            done.result(60)
