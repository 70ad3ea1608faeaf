"""The page "A board and a page in ten minutes": its steps by hand, run as they are written."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.support.processes import SMALL, SOON_S, ServiceProcess, eventually, free_port
from tests.support.prometheus import checked, running_prometheus
from tools.project import ROOT

PAGE: Final = (ROOT / "docs/howto/observe.md").read_text()
BY_HAND: Final = PAGE.partition("### 1. Metrics")[2].partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    """Return the blocks of the steps in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", BY_HAND, re.MULTILINE | re.DOTALL)


def start(
    folder: Path, step: str, port: int, here: Callable[[str], str], *words: str
) -> ServiceProcess:
    """Start the service of a step on a port of its own."""
    _, verb, *own = shlex.split(here(step).replace("\\\n", ""))
    words = (*own, f"--port-{verb}", f"{port}", *words)
    return ServiceProcess(folder, verb, *words, data=folder / verb)


def test_alert_comes_after_the_steps_by_hand(tmp_path: Path) -> None:
    nameserver, broker, generating, prometheus_check, alertmanager_check = blocks("sh")
    prometheus_config, _, alertmanager_config = blocks("yaml")
    port_of_names, names, member = free_port(), free_port(), free_port()

    def here(text: str) -> str:
        text = text.replace("ns-1.example.org:9876", f"127.0.0.1:{port_of_names}")
        text = text.replace("ns-1.example.org:9464", f"127.0.0.1:{names}")
        text = text.replace("broker-a.example.org:9464", f"127.0.0.1:{member}")
        return text.replace("/var/lib/ternmq/", "").replace("0.0.0.0", "127.0.0.1")

    def on_port(step: str, port: int) -> str:
        assert "--metrics-port 9464" in step
        return step.replace("--metrics-port 9464", f"--metrics-port {port}")

    (tmp_path / "prometheus.yml").write_text(
        here(prometheus_config).replace("_interval: 15s", "_interval: 1s")
    )
    (tmp_path / "alertmanager.yml").write_text(alertmanager_config)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-euc", generating],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        check=True,
        timeout=SOON_S,
    )
    assert len(list((tmp_path / "boards").glob("*.json"))) == 4
    for step in (prometheus_check, alertmanager_check):
        tool, *words, file = step.split()
        checked(tool, *words, tmp_path / file)
    small = [word for each in SMALL for word in ("--set", each)]
    with ExitStack() as stack:
        served = start(tmp_path, on_port(nameserver, names), port_of_names, here)
        stack.enter_context(served)
        stopped = start(tmp_path, on_port(broker, member), free_port(), here, *small)
        stack.enter_context(stopped)
        prometheus = stack.enter_context(
            running_prometheus(tmp_path / "prometheus", tmp_path / "prometheus.yml")
        )

        def is_well() -> bool:
            if not prometheus.is_ready():
                return False
            up = [one["value"][1] for one in prometheus.query('up{job="ternmq"}')]
            # The machine of this test may have a small disk.
            return up == ["1", "1"] and prometheus.alerts().keys() <= {"TernMQDiskLow"}

        assert asyncio.run(eventually(is_well))
        stopped.end()
        # It is `pending` for the minute of its rule, and pages then.
        assert asyncio.run(eventually(lambda: "TernMQProcessDown" in prometheus.alerts()))
