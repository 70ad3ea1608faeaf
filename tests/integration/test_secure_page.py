"""The page "Secure a cluster in ten minutes": its steps by hand, run as they are written."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.support.processes import SMALL, SOON_S, ServiceProcess, free_port
from tools.project import ROOT

PAGE: Final = (ROOT / "docs/howto/secure.md").read_text()
BY_HAND: Final = PAGE.partition("## By hand")[2].partition("## Afterwards")[0]
STEPS: Final[list[str]] = re.findall(r"^```sh\n(.*?)^```", BY_HAND, re.MULTILINE | re.DOTALL)
"""Texts of the blocks: certificates, a NameServer, the administrator, services, a broker, an
application."""


def start(
    folder: Path, step: str, data: str, port: int, here: Callable[[str], str], *words: str
) -> ServiceProcess:
    """Start the service of a step with a directory, port and words of its own."""
    _, verb, *own = shlex.split(here(step).replace("\\\n", ""))
    words = (*own, "--data", data, f"--port-{verb}", f"{port}", *words)
    return ServiceProcess(folder, verb, *words, data=folder / data)


def test_cluster_is_secure_after_the_steps_by_hand(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(2)]
    nameservers = [f"localhost:{port}" for port in ports]

    def here(text: str) -> str:
        for number, address in enumerate(nameservers, start=1):
            text = text.replace(f"ns-{number}.example.org:9876", address)
        return text.replace("/var/lib/ternmq/", "").replace("0.0.0.0", "127.0.0.1")

    def shell(step: str, code: int = 0) -> str:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-euc", here(step)],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            input="y\n",
            capture_output=True,
            text=True,
            timeout=SOON_S,
        )
        assert done.returncode == code, (step, done.stdout, done.stderr)
        return done.stdout + done.stderr

    certificates, nameserver, administrator, services, broker, application = STEPS
    as_operator = "".join(re.findall(r"^export .*\n", administrator, re.MULTILINE))
    small = [word for each in SMALL for word in ("--set", each)]
    with ExitStack() as stack:
        shell(certificates)
        for number, port in enumerate(ports, start=1):
            peer = nameserver.replace("=ns-2.", f"=ns-{3 - number}.")
            stack.enter_context(start(tmp_path, peer, f"names-{number}", port, here))
        assert "administrator of everything" in shell(administrator)
        shell(as_operator + services)
        for words in (("--broker-id", "0"), ("--broker-id", "1")):
            data = f"broker-{words[1]}"
            member = start(tmp_path, broker, data, free_port(), here, *words, *small)
            stack.enter_context(member)
        shell(as_operator + application)
        status = shell(f"{as_operator}until ternmq cluster status; do sleep 0.2; done")
        assert status.rstrip().endswith("healthy")
        shop = "ternmq --credentials shop/credentials.toml"
        # A permission is in force within a second.
        sent = shell(
            f"{as_operator}until {shop} message send orders --body hello; do sleep 0.2; done"
        )
        assert "SEND_OK" in sent
        refused = shell(f"{as_operator}{shop} topic create other", code=1)
        assert "user 'shop' may not administer topic:other" in refused
    assert "tmq." not in (tmp_path / "log").read_text()
