"""The cluster of compose.secure.yaml: applications, strangers and the operator."""

import asyncio
import json
import re
import subprocess
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from click.testing import Result

from ternmq import (
    ClientConfig,
    ConsumeFrom,
    Credentials,
    Message,
    Producer,
    PushConsumer,
    PushConsumerConfig,
)
from ternmq_model.message import SendStatus
from tests.support.console import invoke
from tests.support.containers import (
    BROKER_PORTS,
    NAMESERVER_PORTS,
    SECURE_COMPOSE,
    SECURE_NAMESERVERS,
    SECURE_PROJECT,
    inspected,
    running_secure_containers,
    start_secure_containers,
)
from tests.support.processes import eventually
from tools.project import ROOT

SERVICES: Final = (*NAMESERVER_PORTS, *BROKER_PORTS)
CERTIFICATES: Final = ("nameserver", "broker-a", "broker-b", "root", "shop")
ONCE: Final = ("authority", "users", *(f"{name}-certificate" for name in CERTIFICATES))
SEND: Final = "message send orders --body x"
REFUSED: Final = 1
UNREACHABLE: Final = 4
FIRST: Final = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
SOON_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Operator:
    """Console on this machine with the credentials of a file, or none."""

    credentials: Path | None

    def run(self, words: str, *more: str) -> Result:
        """Run a verb."""
        shown = ("--credentials", f"{self.credentials}") if self.credentials else ()
        return invoke(*shown, *words.split(), *more, "--nameserver", SECURE_NAMESERVERS)

    def ok(self, words: str, *more: str) -> str:
        """Run a verb that succeeds, and return what it prints."""
        done = self.run(words, *more)
        assert done.exit_code == 0, (words, done.output)
        return done.stdout


def compose(*words: str) -> str:
    done = subprocess.run([*SECURE_COMPOSE, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def until(holds: Callable[[], bool]) -> bool:
    # A verb has an event loop of its own.
    return asyncio.run(eventually(lambda: asyncio.to_thread(holds), SOON_S))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """Run the cluster; return a copy of the credentials that its first start made."""
    copied = tmp_path_factory.mktemp("secure") / "credentials"
    with running_secure_containers():
        compose("cp", "users:/credentials", f"{copied}")
        yield copied


@pytest.fixture
def root(folder: Path) -> Operator:
    return Operator(folder / "root" / "credentials.toml")


@pytest.fixture
def shop(folder: Path, root: Operator) -> Operator:
    root.ok("topic create orders")
    return Operator(folder / "shop" / "credentials.toml")


def test_cluster_is_healthy_and_warns_of_nothing(root: Operator) -> None:
    status = json.loads(root.ok("cluster status --json"))
    assert (status["healthy"], status["warnings"]) == (True, []), status
    assert len(status["members"]) == len(BROKER_PORTS)


def test_application_sends_and_receives_with_its_credentials(shop: Operator) -> None:
    assert shop.credentials is not None
    client = ClientConfig(credentials=Credentials.from_file(shop.credentials))
    bodies = {b"%d" % number for number in range(8)}

    async def main() -> None:
        missing = set(bodies)
        async with (
            Producer("shop", nameserver=SECURE_NAMESERVERS, client=client) as producer,
            PushConsumer(
                "shop", {"orders": "*"}, nameserver=SECURE_NAMESERVERS, client=client, config=FIRST
            ) as consumer,
        ):
            for body in bodies:
                sent = await producer.send(Message("orders", body))
                assert sent.status is SendStatus.SEND_OK, "slaves follow"
            async with asyncio.timeout(SOON_S):
                async for message in consumer:
                    missing.discard(message.body)
                    if not missing:
                        break

    asyncio.run(main())


def test_application_may_not_administer(shop: Operator) -> None:
    for words in (
        "topic create other",
        "topic delete orders",
        "group delete shop",
        "user list",
        "acl grant shop admin cluster",
        "broker promote broker-a --broker-id 1 --yes",
        "cluster wipe-write-permission broker-a",
        "message send other --body x",
    ):
        done = shop.run(words)
        assert done.exit_code == REFUSED, (words, done.output)
        assert "user 'shop' may not" in done.stderr, (words, done.output)


def test_strangers_are_refused(folder: Path, shop: Operator) -> None:
    own = folder / "shop"
    for name, lines, code in (
        ("without-certificate", 'ca = "ca.pem"', UNREACHABLE),
        ("without-token", 'ca = "ca.pem"\ncert = "shop.pem"\nkey = "shop-key.pem"', REFUSED),
    ):
        file = own / f"{name}.toml"
        file.write_text(lines)
        done = Operator(file).run(SEND)
        assert done.exit_code == code, (name, done.output)
    assert Operator(None).run(SEND).exit_code == UNREACHABLE
    shop.ok(SEND)


def test_revoked_token_is_refused(folder: Path, root: Operator, shop: Operator) -> None:
    assert shop.credentials is not None
    made = json.loads(root.ok("user rotate shop --json"))
    file = folder / "shop" / "second.toml"
    file.touch(0o600)
    file.write_text(re.sub(r'tmq\.[^"]*', made["token"], shop.credentials.read_text()))
    second = Operator(file)
    assert until(lambda: second.run(SEND).exit_code == 0)
    root.ok("user revoke shop", made["token_id"])
    assert until(lambda: "token is wrong, revoked or expired" in second.run(SEND).stderr)
    shop.ok(SEND)


@pytest.mark.parametrize("service", [*SERVICES, *ONCE])
def test_container_is_hardened_and_shows_no_secret(folder: Path, service: str) -> None:
    told = inspected(service, SECURE_PROJECT)
    host = told["HostConfig"]
    assert told["Config"]["User"] == "10001:10001"
    assert (host["ReadonlyRootfs"], host["Privileged"]) == (True, False)
    assert (host["CapDrop"], host["CapAdd"]) == (["ALL"], None)
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    state = told["State"]
    assert (state["ExitCode"] == 0) if service in ONCE else state["Health"]["Status"] == "healthy"
    mounts = {mount["Destination"]: mount for mount in told["Mounts"]}
    if service in SERVICES:
        assert {path: mount["RW"] for path, mount in mounts.items()} == {
            "/data": True,
            "/certificates": False,
        }
    assert ("authority" in str(mounts)) == (service in ONCE and service != "users")
    [token] = re.findall(r"tmq\.shop\.[\w-]+", (folder / "shop" / "credentials.toml").read_text())
    for text in (json.dumps(told), compose("logs", "--no-color", service)):
        assert token not in text
        assert "PRIVATE KEY" not in text


def test_later_start_keeps_certificates_and_users(folder: Path, shop: Operator) -> None:
    start_secure_containers()
    compose("cp", "users:/credentials", f"{folder.parent / 'later'}")
    for path in ("shop/credentials.toml", "shop/shop.pem", "root/root.pem"):
        assert (folder.parent / "later" / path).read_bytes() == (folder / path).read_bytes()
    shop.ok(SEND)
