"""A Prometheus of its own for a test, and its command `promtool`.

with running_prometheus(folder, config) as prometheus:
    [sample] = prometheus.query("up")
"""

import contextlib
import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ENDS_WITHIN_S, SOON_S, free_port, kill


def checked(tool: str, *words: str | Path) -> str:
    """Run `promtool` or `amtool` to a good end, and return what it says."""
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}")
    done = subprocess.run([tool, *words], capture_output=True, text=True, timeout=SOON_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """A running Prometheus."""

    def __init__(self, address: str) -> None:
        self._address = address

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now; an error of Prometheus fails the test."""
        samples: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return samples

    def alerts(self) -> dict[str, str]:
        """Return the states of alerts that are pending or firing, by name."""
        alerts: list[dict[str, Any]] = self._get("alerts")["alerts"]
        return {alert["labels"]["alertname"]: alert["state"] for alert in alerts}

    def broken_rules(self) -> dict[str, str]:
        """Return the errors of rules at their last evaluation, by name."""
        rules = [rule for group in self._get("rules")["groups"] for rule in group["rules"]]
        assert rules
        return {rule["name"]: rule["lastError"] for rule in rules if rule["health"] == "err"}

    def is_ready(self) -> bool:
        """Tell whether it answers queries."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=10):
                return True
        except OSError:
            return False

    def _get(self, path: str, **arguments: str) -> Any:
        query = urllib.parse.urlencode(arguments)
        url = f"http://{self._address}/api/v1/{path}?{query}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{arguments}: {error.read().decode()}") from None


@contextlib.contextmanager
def running_prometheus(folder: Path, config: Path) -> Generator[Prometheus]:
    """Run a Prometheus with its data in `folder`, until the block ends."""
    if shutil.which("prometheus") is None:
        pytest.skip("needs prometheus")
    address = f"127.0.0.1:{free_port()}"
    command = [
        *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"),
        *(f"--web.listen-address={address}", "--log.level=warn"),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, text=True)
    try:
        yield Prometheus(address)
    finally:
        process.terminate()
        try:
            process.wait(ENDS_WITHIN_S)
        finally:
            kill(process)
