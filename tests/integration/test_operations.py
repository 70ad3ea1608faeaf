"""What docs/operations.md tells an operator to do, done: the commands, on real processes."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import Result

from ternmq_model.message import Message
from ternmq_producer.blocking_producer import BlockingProducer
from ternmq_producer.config import ProducerConfig
from tests.support.console import invoke, json_of, text_of
from tests.support.processes import (
    ServiceProcess,
    running_broker,
    running_nameserver,
)

SOON_S: Final = 150


def is_soon(is_so: Callable[[], bool]) -> bool:
    """Wait until `is_so`; return whether it became so in time."""
    until_s = time.monotonic() + SOON_S
    while time.monotonic() < until_s:
        if is_so():
            return True
        time.sleep(0.1)
    return False


@dataclass
class Site:
    """Machines, of which each is a folder, and what runs on them."""

    folder: Path
    services: dict[str, ServiceProcess] = field(default_factory=dict[str, ServiceProcess])

    @property
    def nameserver(self) -> str:
        """Where the NameServer is."""
        return self.services["names"].nameserver

    def data(self, machine: str) -> Path:
        """Return the data directory of a machine."""
        return self.folder / machine / "data"

    def start_nameserver(self, port: str = "0") -> None:
        """Start the NameServer."""
        self._start("names", running_nameserver(self.folder / "names", port=port))

    def start_broker(self, machine: str, *words: str) -> None:
        """Start a member of the broker name `a`; return when it serves."""
        words = ("--role", "sync_master", *words)
        broker = running_broker(self.folder / machine, self.nameserver, *words, name="a")
        self._start(machine, broker)

    def _start(self, machine: str, service: ServiceProcess) -> None:
        self.services[machine] = service
        service.until_ready()

    def stop(self, machine: str, *, kill: bool = False) -> None:
        """End what runs on a machine, in order or not."""
        service = self.services.pop(machine)
        if kill:
            service.kill()
        else:
            service.end()

    def close(self) -> None:
        """End everything."""
        for machine in list(self.services):
            self.stop(machine)

    def run(self, *words: str) -> Result:
        """Run a verb."""
        return invoke(*words, "--nameserver", self.nameserver)

    def json(self, *words: str) -> Any:
        """Return what a verb found."""
        return json_of(*words, "--nameserver", self.nameserver)

    def is_healthy(self) -> bool:
        """Ask `ternmq cluster status`."""
        return self.run("cluster", "status").exit_code == 0

    def until_healthy(self, members: int) -> None:
        """Wait until everything is as it should be, with so many members."""
        assert is_soon(
            lambda: len(self.json("cluster", "list")) == members and self.is_healthy()
        ), self.run("cluster", "status").stdout

    def until_known(self, broker_id: int, *, at: str) -> None:
        """Wait until a member has written down that another one is there."""
        path = self.data(at) / "config" / "replication.json"

        def known() -> list[int]:
            return [each["brokerId"] for each in json.loads(path.read_bytes())["members"]]

        assert is_soon(lambda: broker_id in known()), known()

    def produce(self, *bodies: str) -> None:
        """Send messages of one key, so that they lie in one queue."""
        text = "".join(f"{body}\n" for body in bodies)
        words = ("produce", "orders", "--sharding-key", "k", "--nameserver", self.nameserver)
        text_of(*words, stdin=text)

    @contextmanager
    def sending(self, body: str) -> Generator[threading.Event]:
        """Send a message of the same key once the event is set; wait for its end with the block."""
        begin = threading.Event()

        def send() -> None:
            config = ProducerConfig(send_timeout_s=SOON_S)
            with BlockingProducer("patient", nameserver=self.nameserver, config=config) as producer:
                begin.wait()
                producer.send(Message("orders", body.encode(), sharding_key="k"))

        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send)
            try:
                yield begin
            finally:
                begin.set()
            sending.result()

    def bodies(self) -> list[str]:
        """Return what lies in the topic."""
        return [each["body"] for each in self.json("message", "print", "orders")]

    def ids(self) -> dict[int, str]:
        """Return the members' roles by the ids under which they are registered."""
        return {one["id"]: one["role"] for one in self.json("cluster", "list")}


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    """A NameServer, a master and its slave."""
    site = Site(tmp_path)
    try:
        site.start_nameserver()
        site.start_broker("host-1")
        site.start_broker("host-2", "--broker-id", "1")
        site.until_healthy(2)
        yield site
    finally:
        site.close()


def test_replication_status_of_a_pair_is_shown(site: Site) -> None:
    site.produce("one")
    master, slave = site.json("cluster", "list")
    assert (master["role"], slave["role"]) == ("sync_master", "slave")
    assert (master["status"], slave["status"]) == ("serving", "serving")
    assert master["version"] == slave["version"]
    told = site.json("broker", "ha", "a")
    assert told["epochs"] == site.json("haStatus", "-b", "a")["epochs"]
    master, slave = told["members"]
    assert (master["in_sync"], master["in_sync_now"]) == (True, 2)
    assert (slave["connected"], slave["in_sync"], slave["lag_bytes"]) == (True, True, 0)
    assert told["epochs"]["0"] == told["epochs"]["1"] == [{"epoch": 1, "start": 0}]
    shown = site.run("broker", "ha", "a").stdout
    assert "epochs of ids 0, 1: 1 from 0" in shown
    assert [(one["id"], one["slave_id"]) for one in told["members"]] == [(0, 100), (1, 1)]
    for machine, member in zip(("host-1", "host-2"), told["members"], strict=True):
        assert site.services[machine].broker.rpartition(":")[2] in member["address"]
    assert site.run("cluster", "status").stdout.splitlines()[-1] == "healthy"
    site.stop("host-2", kill=True)
    assert is_soon(lambda: not site.is_healthy())
    assert (
        "a (id 0) has too few members in sync: 1, needs 2" in site.run("cluster", "status").stdout
    )


def test_promotion_asks_for_confirmation_and_is_refused_while_master_lives(site: Site) -> None:
    promote = ("broker", "promote", "a", "--broker-id", "1")
    done = site.run(*promote)
    assert (done.exit_code, "Make slave 1 the master of a?" in done.stderr) == (1, True)
    done = site.run(*promote, "--yes")
    assert done.exit_code == 1, done.stdout
    assert "; others may have 0 acknowledged bytes that this log lacks; --force" in done.stderr
    assert "drains" not in done.stderr
    assert "follows" not in site.run("broker", "drain", "a").stderr
    assert "a is still draining: `ternmq broker undrain a`" in site.run(*promote, "--yes").stderr
    assert site.ids() == {0: "sync_master", 1: "slave"}


def test_planned_switchover_and_back_loses_nothing(site: Site) -> None:
    site.produce("one", "two")
    with site.sending("three") as sent:
        assert site.json("broker", "drain", "a") == {"broker": "a", "draining": True}
        sent.set()
        assert "a (id 0) is draining" in site.run("cluster", "status").stdout
        assert site.json("broker", "ha", "a")["members"][1]["lag_bytes"] == 0
        site.stop("host-1")
        assert "a has no master: no producer can send to it" in site.run("cluster", "status").stdout
        told = site.json("broker", "promote", "a", "--broker-id", "1", "--yes")
        assert told["epoch"] > 1
        assert told["clamped"] == []
    site.start_broker("host-1")
    site.until_healthy(2)
    assert site.ids() == {0: "sync_master", 100: "slave"}
    site.stop("host-2")
    again = site.json("broker", "promote", "a", "--broker-id", "100", "--yes")
    assert again["epoch"] > told["epoch"]
    site.start_broker("host-2", "--broker-id", "1")
    site.until_healthy(2)
    assert site.ids() == {0: "sync_master", 1: "slave"}
    site.produce("four")
    assert site.bodies() == ["one", "two", "three", "four"]


def test_undrained_master_takes_messages_again(site: Site) -> None:
    site.json("broker", "drain", "a")
    done = site.run("message", "send", "orders", "--body", "refused")
    assert done.exit_code != 0
    assert "the broker is draining" in done.stderr
    with site.sending("one") as sent:
        sent.set()
        assert site.json("broker", "undrain", "a") == {"broker": "a", "draining": False}
    site.until_healthy(2)
    assert site.bodies() == ["one"]


def test_lost_disk_of_a_master_is_replaced_by_a_new_member(site: Site) -> None:
    site.produce("one", "two")
    site.stop("host-1", kill=True)
    shutil.rmtree(site.data("host-1"))
    site.json("broker", "promote", "a", "--broker-id", "1", "--yes")
    site.start_broker("host-1", "--broker-id", "2")
    site.until_healthy(2)
    site.produce("three")
    assert site.bodies() == ["one", "two", "three"]
    assert site.ids() == {0: "sync_master", 2: "slave"}


def test_lost_disk_of_a_slave_is_refilled_by_its_master(site: Site) -> None:
    site.produce("one", "two")
    site.stop("host-2", kill=True)
    shutil.rmtree(site.data("host-2"))
    site.start_broker("host-2", "--broker-id", "1")
    site.until_healthy(2)
    master, slave = site.json("broker", "ha", "a")["members"]
    assert (slave["log_end"], slave["epoch"]) == (master["log_end"], master["epoch"])


def test_backup_of_a_slave_is_restored_as_member_and_as_whole_broker(site: Site) -> None:
    backup = site.folder / "backup"
    site.produce("one")
    site.stop("host-2")
    shutil.copytree(site.data("host-2"), backup)
    text_of("store", "check", str(backup))
    site.start_broker("host-2", "--broker-id", "1")
    site.until_healthy(2)
    site.produce("two")
    site.stop("host-2", kill=True)
    shutil.rmtree(site.data("host-2"))
    shutil.copytree(backup, site.data("host-2"))
    site.start_broker("host-2", "--broker-id", "1")
    site.until_healthy(2)
    assert site.bodies() == ["one", "two"]
    for machine in ("host-1", "host-2"):
        site.stop(machine, kill=True)
        shutil.rmtree(site.data(machine))
    shutil.copytree(backup, site.data("host-2"))
    site.start_broker("host-2", "--broker-id", "1")
    site.json("broker", "promote", "a", "--broker-id", "1", "--yes")
    site.start_broker("host-1", "--broker-id", "2")
    site.until_healthy(2)
    site.produce("three")
    assert site.bodies() == ["one", "three"]


def test_forced_restore_of_a_masters_backup_starts_the_name_over(site: Site) -> None:
    backup = site.folder / "backup"
    site.produce("one")
    site.stop("host-1")
    shutil.copytree(site.data("host-1"), backup)
    site.json("broker", "promote", "a", "--broker-id", "1", "--yes")
    for machine in ("host-1", "host-2"):
        if machine in site.services:
            site.stop(machine, kill=True)
        shutil.rmtree(site.data(machine))
    shutil.copytree(backup, site.data("host-1"))
    site.start_broker("host-1", "--force-master")
    site.start_broker("host-2", "--broker-id", "1")
    site.until_healthy(2)
    site.produce("two")
    assert site.bodies() == ["one", "two"]


def test_slave_taken_out_of_use_makes_a_later_promotion_ask_for_force(site: Site) -> None:
    site.start_broker("host-3", "--broker-id", "2")
    site.until_healthy(3)
    site.until_known(2, at="host-2")
    site.produce("one")
    site.stop("host-3")
    site.stop("host-1")
    promote = ("broker", "promote", "a", "--broker-id", "1", "--yes")
    done = site.run(*promote)
    assert done.exit_code == 1, done.stdout
    assert "slaves that may have more do not answer (id 2); others may have 0 acknow" in done.stderr
    site.json(*promote, "--force")
    assert site.ids() == {0: "sync_master"}


def test_nameserver_that_lost_its_directory_relearns_the_epochs(site: Site) -> None:
    port = site.nameserver.rpartition(":")[2]
    site.stop("names", kill=True)
    shutil.rmtree(site.data("names"))
    site.start_nameserver(port)
    site.until_healthy(2)
    site.stop("host-1")
    site.start_broker("host-1")
    site.until_healthy(2)
    assert site.ids() == {0: "sync_master", 1: "slave"}
