from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from ternmq_pipeline.source.tasks.partition_reader import ROWS_SETTING
from tests.support.processes import ServiceProcess
from tests.support.spark_data import fill
from tests.support.spark_read import bodies, read_with
from tests.support.spark_session import executor_pids, kill, setting
from tests.support.stream_gate import Gate

COUNT = 5_000
WITHIN_S = 240.0


def test_tasks_of_a_killed_executor_read_the_same_rows_again(
    spark_cluster: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    expected = fill(dev.nameserver, "LostExecutor", COUNT, queues=2)
    frame = read_with(
        spark_cluster, "body binary", nameserver=dev.nameserver, subscribe="LostExecutor"
    )
    gate = Gate(tmp_path)
    with ThreadPoolExecutor() as pool, setting(spark_cluster, ROWS_SETTING, "100"):
        result = pool.submit(frame.mapInArrow(gate.step(), frame.schema).collect)
        gate.wait()
        kill(executor_pids()[0])
        gate.open()
        rows = result.result(WITHIN_S)
    assert bodies(rows) == sorted(expected)
