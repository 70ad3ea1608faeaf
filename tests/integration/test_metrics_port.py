"""Metrics ports of services that run as processes of their own."""

import select
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from ternmq_model.version import __version__
from ternmq_runtime.metrics.families import NODE_LABELS
from tests.support.metrics_text import Sample, answer_of, parsed
from tests.support.processes import (
    TERNMQ,
    ServiceProcess,
    free_port,
    run_ternmq,
    running_broker,
    running_dev,
    running_nameserver,
)

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
WITHOUT_EXTRA = (
    sys.executable,
    "-c",
    "import sys; sys.modules['prometheus_client'] = None\n"
    "from ternmq_console.main import main; main()",
)
LIMIT_S = 60.0
_LOOK_S = 0.05


def get(port: int, path: str, accept: str = "") -> tuple[int, str]:
    """Return status and text of the answer to a request, once the port answers."""
    end_s = time.monotonic() + LIMIT_S
    while True:
        try:
            return answer_of(f"http://127.0.0.1:{port}{path}", accept, timeout_s=LIMIT_S)
        except OSError:
            if time.monotonic() > end_s:
                raise
        time.sleep(_LOOK_S)


def scraped(port: int, accept: str = "") -> list[Sample]:
    status, text = get(port, "/metrics", accept)
    assert status == 200
    return parsed(text, is_openmetrics=bool(accept))


def nodes_of(samples: Sequence[Sample], name: str) -> list[tuple[str, ...]]:
    labels = [each.labels for each in samples if each.name == name]
    return sorted(tuple(map(each.__getitem__, NODE_LABELS)) for each in labels)


def answered(samples: Sequence[Sample], request_code: str) -> float:
    return sum(
        each.value
        for each in samples
        if each.name == "rocketmq_rpc_latency_milliseconds_count"
        and each.labels["request_code"] == request_code
        and (each.labels["response_code"], each.labels["result"]) == ("success", "success")
    )


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory, port: int) -> Generator[ServiceProcess]:
    with running_dev(tmp_path_factory.mktemp("dev"), "--metrics-port", port) as process:
        yield process


def test_dev_prints_the_address_of_its_metrics_behind_the_others(
    dev: ServiceProcess, port: int
) -> None:
    assert dev.process.stdout is not None
    assert dev.process.stdout.readline() == f"metrics 127.0.0.1:{port}\n"
    assert "metrics port" not in dev.log.read_text()


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_dev_shows_both_of_its_services_in_both_formats(
    dev: ServiceProcess, port: int, accept: str
) -> None:
    before = scraped(port, accept)
    run_ternmq("topic", "list", "--nameserver", dev.nameserver)
    run_ternmq("group", "list", "--nameserver", dev.nameserver)
    samples = scraped(port, accept)
    both = [("", "nameserver", dev.nameserver), ("DefaultCluster", "broker", dev.broker_name)]
    assert nodes_of(samples, "ternmq_build_info") == both
    assert {each.labels["version"] for each in samples if each.name == "ternmq_build_info"} == {
        __version__
    }
    for request_code in ("list_topics", "list_groups"):
        assert answered(samples, request_code) == answered(before, request_code) + 1
    names = {each.name for each in samples}
    assert {"process_resident_memory_bytes", "python_info"} <= names
    assert nodes_of(samples, "ternmq_loop_pause_seconds_count") == [both[1]]


def test_dev_is_alive_and_ready_and_has_no_other_paths(dev: ServiceProcess, port: int) -> None:
    assert get(port, "/livez") == (200, "ok\n")
    assert get(port, "/readyz") == (200, "ok\n")
    assert get(port, "/metrics/x") == (404, "paths: /metrics /livez /readyz\n")


def test_ninth_connection_at_a_time_is_closed(dev: ServiceProcess, port: int) -> None:
    assert get(port, "/livez")[0] == 200
    waiting: list[socket.socket] = []
    try:
        waiting += (socket.create_connection(("127.0.0.1", port)) for _ in range(9))
        closed, _, _ = select.select(waiting, [], [], LIMIT_S)
        assert {each.recv(1) for each in closed} == {b""}
    finally:
        for each in waiting:
            each.close()
    assert get(port, "/livez") == (200, "ok\n")


def test_nameserver_shows_its_brokers_and_names_without_a_master(tmp_path: Path) -> None:
    port = free_port()
    with running_nameserver(tmp_path / "names", "--metrics-port", port) as names:
        node = ("nameserver", names.nameserver)
        assert nodes_of(scraped(port), "ternmq_nameserver_topics") == [("", *node)]
        assert nodes_of(scraped(port), "ternmq_nameserver_brokers") == []
        with (
            running_broker(tmp_path / "a", names.nameserver, "--force-master", name="a"),
            running_broker(
                tmp_path / "b", names.nameserver, "--role", "slave", "--broker-id", "1", name="b"
            ),
        ):
            samples = scraped(port)
            values = {each.name: each.value for each in samples}
            assert nodes_of(samples, "ternmq_nameserver_brokers") == [("DefaultCluster", *node)]
            assert values["ternmq_nameserver_brokers"] == 2
            assert values["ternmq_nameserver_topics"] >= 1
            (lone,) = [each for each in samples if each.name == "ternmq_nameserver_without_master"]
            assert (lone.labels["broker"], lone.value) == ("b", 1)


def test_master_that_waits_for_a_confirmation_is_alive_and_not_ready(tmp_path: Path) -> None:
    port = free_port()
    nameserver = f"127.0.0.1:{free_port()}"
    words = ("--role", "sync_master", "--metrics-port", port)
    broker = running_broker(tmp_path / "a", nameserver, *words)
    try:
        assert get(port, "/livez") == (200, "ok\n")
        reason = "broker a is not registered: it starts, or waits for a confirmation\n"
        assert get(port, "/readyz") == (503, reason)
        assert nodes_of(scraped(port), "ternmq_build_info") == [("DefaultCluster", "broker", "a")]
    finally:
        assert broker.end() == 0


def failed_start(tmp_path: Path, *words: object, launcher: Sequence[str] = TERNMQ) -> str:
    """Return the error of a NameServer that does not start with these words."""
    done = subprocess.run(
        [*launcher, "nameserver", "--port-nameserver", "0", *map(str, words)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode in (1, 2), done.stderr
    assert done.stdout == ""
    return done.stderr


def test_taken_port_names_its_setting_and_option(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        error = failed_start(tmp_path, "--metrics-port", port)
    assert error == (
        f"ternmq: metrics.port: cannot listen on 127.0.0.1:{port}: Address already in use"
        " (choose another: --metrics-port, 0 = none)\n"
    )


def test_missing_extra_is_named_and_needed_for_the_port_alone(tmp_path: Path) -> None:
    error = failed_start(tmp_path, "--metrics-port", 9090, launcher=WITHOUT_EXTRA)
    assert error == "ternmq: metrics.port=9090: needs `pip install '/path/to/ternmq[metrics]'`\n"
    with running_nameserver(tmp_path, launcher=WITHOUT_EXTRA) as names:
        assert names.nameserver


@pytest.mark.parametrize(("words", "warnings"), [((), 1), (("--insecure",), 0)])
def test_port_beyond_its_machine_is_warned_of_once_unless_that_is_accepted(
    tmp_path: Path, words: Sequence[str], warnings: int
) -> None:
    port = free_port()
    listen = ("--metrics-port", port, "--set", "metrics.listen=0.0.0.0")
    with running_nameserver(tmp_path, *listen, *words) as names:
        assert scraped(port)
        assert names.log.read_text().count("metrics port shows names") == warnings


def test_service_starts_again_on_its_port_after_a_scrape(tmp_path: Path) -> None:
    port = free_port()
    for _ in range(2):
        with running_nameserver(tmp_path, "--metrics-port", port):
            assert scraped(port)
