import sys

from pyspark.sql import SparkSession

from tests.support.spark_session import executor_pids


def where(_: int) -> tuple[str, str]:
    import ternmq_pipeline

    return sys.executable, ternmq_pipeline.__name__


def test_local_workers_run_this_python_and_find_our_packages(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([1, 2], 2).map(where).collect()
    assert set(found) == {(sys.executable, "ternmq_pipeline")}


def test_executors_are_processes_that_find_our_packages(spark_cluster: SparkSession) -> None:
    found = spark_cluster.sparkContext.parallelize(range(4), 4).map(where).collect()
    assert set(found) == {(sys.executable, "ternmq_pipeline")}
    assert len(executor_pids()) == 2


def test_sessions_can_follow_each_other(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
    assert spark.sparkContext.master == "local[2]"
    assert executor_pids() == []
