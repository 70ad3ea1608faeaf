"""What the tests with real Spark share: sessions, a cluster of TernMQ, and silence."""

from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from tests.support.processes import ServiceProcess, running_dev
from tests.support.spark_session import Sessions, java_missing
from tests.support.spark_sink import eventually

HERE = Path(__file__).parent

SILENCED = (
    # Py4J keeps connections to the JVM and leaves the closing of them to the collector.
    r"ignore:unclosed <socket\.socket .*127\.0\.0\.1:ResourceWarning",
    r"ignore:unclosed <socket\.socket .*raddr=None:ResourceWarning",
    # What it says of a pandas that is newer than itself.
    r"ignore:PySpark does not yet fully support pandas:FutureWarning",
)
"""What PySpark does and a test must not fail for. Anything else is an error, as everywhere."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let PySpark's habits pass in this folder's tests; those with executors go first."""
    for item in items:
        if item.path.is_relative_to(HERE):
            for text in SILENCED:
                item.add_marker(pytest.mark.filterwarnings(text))
    items.sort(key=lambda item: "spark_cluster" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sessions]:
    """The owner of the one session. `spark` and `spark_cluster` are what tests ask for."""
    if missing := java_missing():
        pytest.skip(f"needs Java: {missing}")
    sessions = Sessions(tmp_path_factory.mktemp("spark"))
    yield sessions
    sessions.close()


@pytest.fixture
def spark(sessions: Sessions) -> SparkSession:
    """A session over `local[2]`, the same for all tests that follow each other."""
    return sessions.local()


@pytest.fixture
def spark_cluster(sessions: Sessions) -> SparkSession:
    """A session with two executor processes, which `executor_pids` names. Have few such tests."""
    session = sessions.cluster()
    context = cast("Any", session.sparkContext)
    registered = context._jsc.sc().getExecutorMemoryStatus
    eventually(lambda: registered().size() == 3, "the driver has both executors")
    return session


@pytest.fixture(scope="session")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    """A NameServer and a broker, the same for all tests: each uses topics of its own name."""
    with running_dev(tmp_path_factory.mktemp("dev")) as running:
        yield running
