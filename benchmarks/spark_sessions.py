"""Spark as the benchmarks start it: two tasks at a time, on loopback, quiet, with this Python."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(folder: Path, *, driver_memory: str = "1g") -> "SparkSession":
    """Start Spark.

    Args:
        folder: Folder of temporary files.
        driver_memory: Memory of the driver's JVM.
    """
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.Builder().master("local[2]").appName("benchmark")
    own = {"spark.driver.memory": driver_memory, "spark.local.dir": str(folder / "scratch")}
    for name, value in {**_SETTINGS, **own}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
