"""Real Spark sessions for tests: at most one at a time, on loopback, quiet, with our Python.

The JVM starts with the first test that asks for a session and ends with the last one; a session on
it takes about two seconds.
"""

import contextlib
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[2]
JAVA_MAJOR_MIN: Final = 17

LOCAL: Final = "local[2]"
TWO_EXECUTORS: Final = "local-cluster[2,1,1024]"
"""Executors in processes of their own, which a test may kill."""

DRIVER_MEMORY: Final = "spark.driver.memory=1g"
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live briefly: the optimizing compiler would cost them more than it saves."""

JVM_ENDS_WITHIN_S: Final = 60.0
_CONNECTION: Final = struct.Struct(">ii")
"""What the JVM writes into a file: its port, and the length of the secret that follows."""


PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def java_missing() -> str:
    """Return why Spark cannot run here, "" when it can."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        return "no java was found"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found[1]) < JAVA_MAJOR_MIN:
        return f"Java {JAVA_MAJOR_MIN} or newer is needed; `java -version` says {told!r}"
    return ""


class Sessions:
    """Owner of the one session that may live: asked for another kind, it ends the present one.

    And of the JVM in which sessions live. PySpark would start it by forking this process, in which
    other tests' threads run, and leave it to the collector.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jvm = start_jvm(folder)
        self._spark: SparkSession | None = None
        self._kind: tuple[str, Mapping[str, str]] | None = None

    def local(self) -> SparkSession:
        """Return a session whose tasks run in the driver's JVM, two at a time."""
        return self.session(LOCAL)

    def cluster(self) -> SparkSession:
        """Return a session with two executors of one core, each a process of its own."""
        return self.session(TWO_EXECUTORS)

    def session(self, master: str, **settings: str) -> SparkSession:
        """Return the living session if it is of this kind, else a new one.

        Args:
            master: Spark's `spark.master`.
            settings: More settings; `__` in a name stands for a dot.
        """
        named = {name.replace("__", "."): value for name, value in settings.items()}
        if self._spark is None or self._kind != (master, named):
            self.end()
            self._spark = make_session(master, self._folder, named)
            self._kind = (master, named)
        return self._spark

    def end(self) -> None:
        """Stop the session, if one lives."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def close(self) -> None:
        """Stop the session, if one lives, and the JVM."""
        self.end()
        assert self._jvm.stdin is not None
        self._jvm.stdin.close()
        self._jvm.wait(JVM_ENDS_WITHIN_S)


def start_jvm(folder: Path) -> "subprocess.Popen[bytes]":
    """Start a JVM, and connect PySpark to it. It ends when its input is closed."""
    told = folder / "gateway"
    os.environ.update(_environment(folder))
    submit = str(folder / "home" / "bin" / "spark-submit")
    command = [submit, "--conf", DRIVER_MEMORY, "pyspark-shell"]
    own = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)}
    jvm = subprocess.Popen(
        command, env=os.environ | own, stdin=subprocess.PIPE, start_new_session=True
    )
    never = threading.Event()
    while not told.exists():
        assert jvm.poll() is None, f"the JVM ended with {jvm.returncode}"
        never.wait(0.05)
    port, length = _CONNECTION.unpack_from(data := told.read_bytes())
    secret = data[_CONNECTION.size : _CONNECTION.size + length].decode()
    # Only now: programs that tests start must have JVMs of their own.
    gateway = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(gateway)
    try:
        SparkContext._ensure_initialized()  # pyright: ignore[reportPrivateUsage]
    finally:
        for name in gateway:
            del os.environ[name]
    return jvm


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_HOME": str(_spark_home(folder)),
        "SPARK_LAUNCHER_OPTS": JAVA_OPTIONS,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": JAVA_OPTIONS,
    }


def make_session(master: str, folder: Path, settings: Mapping[str, str]) -> SparkSession:
    """Start a session. Workers run this Python and find our packages and `tests`.

    Args:
        master: Spark's `spark.master`.
        folder: Where it keeps what is temporary, its warehouse too.
        settings: What differs from the rest.
    """
    os.environ.update(_environment(folder))
    builder = SparkSession.Builder().master(master).appName("tests")
    for name, value in (_SETTINGS | _places(folder) | dict(settings)).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def _spark_home(folder: Path) -> Path:
    """Return a home of Spark whose `work`, where executors log, is ours and not the package's.

    Without PySpark in zip archives: workers would import it from there, and compile it each time.
    """
    home = folder / "home"
    if not home.exists():
        home.mkdir(parents=True)
        for part in Path(pyspark.__file__).parent.iterdir():
            if part.name != "python":
                (home / part.name).symlink_to(part)
    return home


def _places(folder: Path) -> dict[str, str]:
    return {
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }


class ConfHolder(Protocol):
    """What has settings that may change while it lives: a session."""

    @property
    def conf(self) -> Any:
        """Its settings."""
        ...


@contextlib.contextmanager
def setting(spark: ConfHolder, name: str, value: str) -> Generator[None]:
    """Let a setting of the session have another value inside the block."""
    before: str | None = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def executor_pids() -> list[int]:
    """Return the process ids of the executors that this process's sessions run, oldest first."""
    parents: dict[int, int] = {}
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes():
                found.append(pid)
    return sorted(pid for pid in found if _is_ours(pid, parents))


def kill(pid: int) -> None:
    """End a process as `kill -9` does; none of that id is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _is_ours(pid: int, parents: Mapping[int, int]) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = parents.get(pid, 0)
    return False
