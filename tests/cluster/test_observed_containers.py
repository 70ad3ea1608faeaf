"""The overlay compose.observe.yaml: valid, of pinned images, and scraping every service."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from ternmq_console.generate.boards import BOARDS
from tests.support.containers import PORTS
from tests.support.prometheus import checked
from tests.support.steps import run_shell
from tools.project import ROOT

FILES: Final = ("--file", "compose.yaml", "--file", "compose.observe.yaml")
OBSERVERS: Final = ("prometheus", "grafana", "tempo")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    command = ["docker", "compose", *FILES, "config", "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def data(project: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the service `provisioning` fills, filled here."""
    folder = tmp_path_factory.mktemp("provisioning")
    [script] = project["services"]["provisioning"]["command"]
    run_shell(re.sub(r"/data\b", f"{folder}", script), folder)
    return folder


def test_prometheus_scrapes_every_service(project: dict[str, Any], data: Path) -> None:
    shown = {
        f"{name}:{service['environment']['TERNMQ_METRICS__PORT']}"
        for name, service in project["services"].items()
        if "TERNMQ_METRICS__PORT" in service.get("environment", {})
    }
    assert {each.partition(":")[0] for each in shown} == PORTS.keys()
    file = data / "prometheus.yaml"
    assert set(re.findall(r"- (\S+:\d+)\n", file.read_text())) == shown
    assert "1 rule files found" in checked("promtool", "check", "config", file)


def test_grafana_finds_boards_and_data_sources(data: Path) -> None:
    assert len(list((data / "boards").glob("*.json"))) == len(BOARDS)
    sources, boards = (
        (data / "provisioning" / kind / "ternmq.yaml").read_text()
        for kind in ("datasources", "dashboards")
    )
    assert 'url: "http://prometheus:9090"' in sources
    assert f"path: {data / 'boards'} " in boards


@pytest.mark.parametrize("name", OBSERVERS)
def test_observer_is_pinned_restricted_and_of_this_machine_alone(
    project: dict[str, Any], name: str
) -> None:
    service = project["services"][name]
    assert re.fullmatch(r"\w+/\w+:v?\d+\.\d+\.\d+", service["image"])
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {port["host_ip"] for port in service["ports"]} == {"127.0.0.1"}


@pytest.mark.parametrize("name", OBSERVERS)
def test_observer_reads_files_when_they_are_written(project: dict[str, Any], name: str) -> None:
    service = project["services"][name]
    assert service["depends_on"]["provisioning"]["condition"] == "service_completed_successfully"
    [written] = project["services"]["provisioning"]["volumes"]
    [read] = [mount for mount in service["volumes"] if mount["target"] == "/data"]
    assert (read["source"], read["read_only"]) == (written["source"], True)
