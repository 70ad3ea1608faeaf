"""The demo beside the cluster: who sends and who takes, as containers."""

import subprocess
from typing import Final

from tests.support.containers import COMPOSE, container, inspected
from tools.project import ROOT

SERVICES: Final = ("send-orders", "take-orders")
DEMO: Final = (*COMPOSE, "--file", "compose.demo.yaml")
ORDERS: Final = 5
SOON_S: Final = 150


def run(*arguments: str) -> None:
    subprocess.run([*DEMO, *arguments], cwd=ROOT, check=True, capture_output=True, timeout=SOON_S)


def test_demo_consumes_its_own_orders_and_stops_in_order() -> None:
    run("up", "--detach", "--no-recreate", *SERVICES)
    follow = ["timeout", f"{SOON_S}", "docker", "logs", "--follow", container("take-orders")]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(ORDERS)]
        process.terminate()
    run("stop", *SERVICES)
    assert all(" x " in line and "from broker-" in line for line in lines), lines
    # Ended in order by SIGTERM; 137 would be the engine's SIGKILL at the end of its patience.
    assert [inspected(service)["State"]["ExitCode"] for service in SERVICES] == [143, 143]
