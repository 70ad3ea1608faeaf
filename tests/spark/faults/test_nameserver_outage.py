"""The only NameServer is away while batches begin, in workers that know nothing of the cluster."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.processes import free_port, running_broker, running_nameserver
from tests.support.spark_data import fill, make_topic
from tests.support.spark_read import bodies as bodies_of
from tests.support.spark_read import read_with
from tests.support.spark_session import LOCAL, Sessions
from tests.support.spark_sink import bodies, numbers, write_beside

COUNT = 2_000
AWAY_S = 8.0
"""Beyond the first question; longer than any denial needs to count."""

WITHIN_S = 200.0


@pytest.fixture
def spark_anew(sessions: Sessions) -> SparkSession:
    """A session with a new Python worker for each task."""
    return sessions.session(LOCAL, spark__python__worker__reuse="false")


def seen(probe: socket.socket) -> None:
    """Wait until somebody asks at an address, who gets no answer."""
    probe.settimeout(WITHIN_S)
    probe.accept()[0].close()


def test_write_and_read_that_begin_without_a_nameserver_lose_and_double_nothing(
    spark_anew: SparkSession, tmp_path: Path
) -> None:
    retry = {"retryTimeout": f"{WITHIN_S:.0f}s"}
    with (
        running_nameserver(tmp_path / "names") as names,
        running_broker(tmp_path / "broker-a", names.nameserver),
        ThreadPoolExecutor() as pool,
    ):
        expected = fill(names.nameserver, "outage-read", COUNT)
        make_topic(names.nameserver, "outage-sent")
        names.kill()
        # A second address for each tells when it asks: a busy machine begins late.
        with (
            socket.create_server(("127.0.0.1", free_port())) as of_write,
            socket.create_server(("127.0.0.1", free_port())) as of_read,
        ):
            at = [
                f"{names.nameserver},127.0.0.1:{one.getsockname()[1]}"
                for one in (of_write, of_read)
            ]
            frame = numbers(spark_anew, COUNT)
            write = write_beside(
                pool, frame, "ternmq", nameserver=at[0], topic="outage-sent", **retry
            )
            frame = read_with(spark_anew, nameserver=at[1], subscribe="outage-read", **retry)
            read = pool.submit(frame.collect)
            seen(of_write)
            seen(of_read)
        threading.Event().wait(AWAY_S)
        assert not write.done()
        assert not read.done()
        port = names.nameserver.rpartition(":")[2]
        with running_nameserver(tmp_path / "names", port=port):
            write.result(WITHIN_S)
            assert bodies_of(read.result(WITHIN_S)) == sorted(expected)
            sent = bodies(names.nameserver, "outage-sent")
    assert sorted(sent, key=int) == [str(number) for number in range(COUNT)]
