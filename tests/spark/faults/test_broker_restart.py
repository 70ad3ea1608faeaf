from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ternmq_pipeline.source.tasks.partition_reader import ROWS_SETTING
from tests.support.processes import running_dev
from tests.support.spark_data import fill
from tests.support.spark_read import bodies, read_with
from tests.support.spark_session import setting
from tests.support.stream_gate import Gate

COUNT = 20_000
WAITS_S = 60.0


@pytest.mark.parametrize("scan", ["auto", "never"])
def test_broker_may_restart_in_mid_batch(spark: SparkSession, tmp_path: Path, scan: str) -> None:
    with running_dev(tmp_path) as dev, ThreadPoolExecutor() as pool:
        expected = fill(dev.nameserver, "Restarted", COUNT, queues=2)
        frame = read_with(
            spark,
            "body binary, properties map<string,string>",
            nameserver=dev.nameserver,
            subscribe="Restarted",
            scan=scan,
        )
        gate = Gate(tmp_path)
        with setting(spark, ROWS_SETTING, "100"):
            result = pool.submit(frame.mapInArrow(gate.step(), frame.schema).collect)
            gate.wait()
        dev.kill()
        port = int(dev.nameserver.rpartition(":")[2])
        with running_dev(tmp_path, port_nameserver=port):
            gate.open()
            rows = result.result(WAITS_S)
    assert len(rows) == COUNT
    assert bodies(rows) == sorted(expected)
