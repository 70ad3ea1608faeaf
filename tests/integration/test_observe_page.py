"""The page "A board and a page in ten minutes": its steps by hand, run as they are written."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.support.processes import SMALL, eventually, free_port
from tests.support.prometheus import checked, running_prometheus
from tests.support.steps import blocks, run_shell, start
from tools.project import ROOT

PAGE: Final = (ROOT / "docs/howto/observe.md").read_text()
BY_HAND: Final = PAGE.partition("### 1. Metrics")[2].partition("\n## ")[0]


def test_alert_comes_after_the_steps_by_hand(tmp_path: Path) -> None:
    nameserver, broker, generating, prometheus_check, alertmanager_check = blocks(BY_HAND, "sh")
    prometheus_config, _, alertmanager_config = blocks(BY_HAND, "yaml")
    port_of_names, names, member = free_port(), free_port(), free_port()

    def here(text: str) -> str:
        text = text.replace("ns-1.example.org:9876", f"127.0.0.1:{port_of_names}")
        text = text.replace("ns-1.example.org:9464", f"127.0.0.1:{names}")
        text = text.replace("broker-a.example.org:9464", f"127.0.0.1:{member}")
        return text.replace("/var/lib/ternmq/", "").replace("0.0.0.0", "127.0.0.1")

    def on_port(step: str, port: int) -> str:
        assert "--metrics-port 9464" in step
        return here(step).replace("--metrics-port 9464", f"--metrics-port {port}")

    (tmp_path / "prometheus.yml").write_text(
        here(prometheus_config).replace("_interval: 15s", "_interval: 1s")
    )
    (tmp_path / "alertmanager.yml").write_text(alertmanager_config)
    run_shell(generating, tmp_path)
    assert len(list((tmp_path / "boards").glob("*.json"))) == 4
    for step in (prometheus_check, alertmanager_check):
        tool, *words, file = step.split()
        checked(tool, *words, tmp_path / file)
    small = [word for each in SMALL for word in ("--set", each)]
    with ExitStack() as stack:
        served = start(tmp_path, on_port(nameserver, names), "nameserver", port_of_names)
        stack.enter_context(served)
        stopped = start(tmp_path, on_port(broker, member), "broker", free_port(), *small)
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
