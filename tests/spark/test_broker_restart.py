import functools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ternmq_pipeline.source.tasks.reading import ROWS_SETTING
from tests.spark.conftest import TERNMQ
from tests.support.dev_process import running_dev
from tests.support.spark_data import fill
from tests.support.spark_read import bodies, read_with
from tests.support.spark_session import setting

COUNT = 20_000
WAITS_S = 60.0


def wait_for(path: Path) -> None:
    """Return once `path` is there; another process makes it."""
    never = threading.Event()
    for _ in range(int(WAITS_S / 0.05)):
        if path.exists():
            return
        never.wait(0.05)
    raise TimeoutError(path)


def stop_in_the_middle(batches: Iterator[pa.RecordBatch], folder: Path) -> Iterator[pa.RecordBatch]:
    """Take one batch, say so, and take no other before the broker is back."""
    for place, batch in enumerate(batches):
        if place == 1:
            (folder / "begun").touch()
            wait_for(folder / "back")
        yield batch


@pytest.mark.parametrize("scan", ["auto", "never"])
def test_a_broker_may_restart_in_mid_batch(spark: SparkSession, tmp_path: Path, scan: str) -> None:
    with running_dev(TERNMQ, tmp_path) as dev, ThreadPoolExecutor() as pool:
        expected = fill(dev.nameserver, "Restarted", COUNT, queues=2)
        frame = read_with(
            spark,
            "body binary, properties map<string,string>",
            nameserver=dev.nameserver,
            subscribe="Restarted",
            scan=scan,
        )
        slow = functools.partial(stop_in_the_middle, folder=tmp_path)
        with setting(spark, ROWS_SETTING, "100"):
            result = pool.submit(frame.mapInArrow(slow, frame.schema).collect)
            wait_for(tmp_path / "begun")
        dev.process.kill()
        dev.process.wait()
        port = int(dev.nameserver.rpartition(":")[2])
        with running_dev(TERNMQ, tmp_path, port_nameserver=port):
            (tmp_path / "back").touch()
            rows = result.result(WAITS_S)
    assert len(rows) == COUNT
    assert bodies(rows) == sorted(expected)
