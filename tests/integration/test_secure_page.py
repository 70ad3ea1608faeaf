"""The page "Secure a cluster in ten minutes": its steps by hand, run as they are written."""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.support.processes import SMALL, free_port
from tests.support.steps import blocks, run_shell, start
from tools.project import ROOT

PAGE: Final = (ROOT / "docs/howto/secure.md").read_text()
BY_HAND: Final = PAGE.partition("## By hand")[2].partition("## Afterwards")[0]
STEPS: Final = blocks(BY_HAND, "sh")
"""Texts of the blocks: certificates, a NameServer, the administrator, services, a broker, an
application."""


def test_cluster_is_secure_after_the_steps_by_hand(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(2)]
    nameservers = [f"localhost:{port}" for port in ports]

    def here(text: str) -> str:
        for number, address in enumerate(nameservers, start=1):
            text = text.replace(f"ns-{number}.example.org:9876", address)
        return text.replace("/var/lib/ternmq/", "").replace("0.0.0.0", "127.0.0.1")

    def shell(step: str, code: int = 0) -> str:
        return run_shell(here(step), tmp_path, code=code)

    certificates, nameserver, administrator, services, broker, application = STEPS
    as_operator = "".join(re.findall(r"^export .*\n", administrator, re.MULTILINE))
    small = [word for each in SMALL for word in ("--set", each)]
    with ExitStack() as stack:
        shell(certificates)
        for number, port in enumerate(ports, start=1):
            peer = nameserver.replace("=ns-2.", f"=ns-{3 - number}.")
            stack.enter_context(start(tmp_path, here(peer), f"names-{number}", port))
        assert "administrator of everything" in shell(administrator)
        shell(as_operator + services)
        for words in (("--broker-id", "0"), ("--broker-id", "1")):
            data = f"broker-{words[1]}"
            member = start(tmp_path, here(broker), data, free_port(), *words, *small)
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
