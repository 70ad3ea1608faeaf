"""`ternmq broker repair-epoch` on real processes, whose files an older version has poisoned."""

import json
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import Result

from ternmq_broker.state.fastjson import write_json
from ternmq_model.json_checksum import add_checksum
from ternmq_nameserver.epoch_table import EpochTable
from tests.support.console import invoke, json_of, text_of
from tests.support.processes import (
    SMALL,
    TERNMQ,
    ServiceProcess,
    free_port,
    running_broker,
    running_nameserver,
)

MADE_UP: Final = 1 << 62
CLUSTER: Final = "DefaultCluster"
SOON_S: Final = 150


class Site:
    """A NameServer and members of the broker name `a`, each in a folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.port = free_port()
        self.nameserver = f"127.0.0.1:{self.port}"

    def start_nameserver(self) -> ServiceProcess:
        """Start the NameServer."""
        service = running_nameserver(self.folder / "names", port=self.port)
        return self.stack.enter_context(service)

    def start(self, machine: str, *words: object, name: str = "a") -> ServiceProcess:
        """Start a member; return when it serves."""
        folder = self.folder / machine
        service = running_broker(folder, self.nameserver, *words, name=name)
        return self.stack.enter_context(service)

    def data(self, machine: str) -> Path:
        """Return a data directory."""
        return self.folder / machine / "data"

    def poison_nameserver(self) -> None:
        """Have the NameServer keep an epoch that nobody began."""
        data = EpochTable({(CLUSTER, "a"): MADE_UP}).to_json()
        for name in ("brokerEpochs.json", "brokerEpochs.json.bak"):
            (self.data("names") / name).write_bytes(data)

    def kept(self, machine: str) -> dict[str, Any]:
        """Return what a member keeps of epochs."""
        path = self.data(machine) / "config" / "replication.json"
        kept: dict[str, Any] = json.loads(path.read_bytes())
        return kept

    def poison(self, machine: str, **changes: object) -> None:
        """Have a member keep an epoch that nobody began."""
        kept = self.kept(machine)
        kept.popitem()  # the checksum
        data = add_checksum(write_json(kept | changes))
        for name in ("replication.json", "replication.json.bak"):
            (self.data(machine) / "config" / name).write_bytes(data)

    def repair(self, *words: str, yes: bool = True) -> Result:
        """Run the verb."""
        told = (*words, "--yes") if yes else words
        return invoke("broker", "repair-epoch", *told, "--nameserver", self.nameserver)

    def produce(self, body: str) -> None:
        """Send a message."""
        words = ("produce", "orders", "--sharding-key", "k", "--nameserver", self.nameserver)
        text_of(*words, stdin=f"{body}\n")

    def bodies(self) -> list[str]:
        """Return what lies in the topic."""
        found = json_of("message", "print", "orders", "--nameserver", self.nameserver)
        return [each["body"] for each in found]

    def members(self) -> dict[int, int]:
        """Return the epochs of the members that are registered, by id."""
        done = invoke("broker", "ha", "a", "--nameserver", self.nameserver, "--json")
        if done.exit_code == 3:
            return {}  # a NameServer that was just started knows nobody
        assert done.exit_code == 0, done.stderr
        return {each["id"]: each["epoch"] for each in json.loads(done.stdout)["members"]}


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


def is_soon(is_so: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + SOON_S
    while not (done := is_so()) and time.monotonic() < until_s:
        time.sleep(0.1)
    return done


def refused_start(site: Site, machine: str) -> str:
    """Return the line with which a start ends that is refused."""
    told = (word for each in SMALL for word in ("--set", each))
    words = ("broker", "--data", site.data(machine), "--name", "a", "--port-broker", "0", *told)
    command = [*TERNMQ, *map(str, words), "--nameserver", site.nameserver]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON_S, check=False)
    assert done.returncode
    return done.stderr.splitlines()[-1]


def test_broker_and_nameserver_poisoned_by_older_version_serve_again(site: Site) -> None:
    names = site.start_nameserver()
    broker = site.start("one")
    site.produce("before")
    broker.end()
    names.end()
    site.poison_nameserver()
    site.poison("one", highestEpoch=MADE_UP, isMaster=False, isReplicated=True)
    names = site.start_nameserver()
    repair = f"ternmq broker repair-epoch a --data {site.data('names')}"
    assert repair in names.log.read_text()
    line = refused_start(site, "one")
    assert f"ternmq broker repair-epoch BROKER --data {site.data('one')}" in line
    not_known = site.repair("a", "--data", str(site.data("one")))
    assert not_known.exit_code == 2
    assert "the logs here have 1" in not_known.stderr
    words = ("a", "--data", str(site.data("one")), "--epoch", "1")
    assert site.repair(*words, yes=False).exit_code == 1
    assert site.kept("one")["highestEpoch"] == MADE_UP
    done = site.repair(*words)
    assert done.exit_code == 0, done.stderr
    assert f"(store {site.kept('one')['storeId']})" in done.stdout
    assert site.kept("one")["highestEpoch"] == 1
    assert "nothing to repair" in site.repair(*words).stdout
    of_names = ("a", "--data", str(site.data("names")), "--epoch", "1")
    assert "in use" in site.repair(*of_names).stderr
    names.end()
    assert site.repair(*words).exit_code == 4  # a NameServer was away
    done = site.repair(*of_names)
    assert done.exit_code == 0, done.stderr
    site.start_nameserver()
    site.start("one", "--force-master")
    site.produce("after")
    assert site.bodies() == ["before", "after"]
    assert list(site.members()) == [0]


def test_nameserver_forgets_name_that_will_not_come_back(site: Site) -> None:
    def forget(*words: str) -> Result:
        return invoke("broker", "forget-epoch", "a", "b", "--data", str(site.data("names")), *words)

    names = site.start_nameserver()
    site.start("one").end()
    assert "in use" in forget("--yes").stderr
    names.end()
    assert forget().exit_code == 1
    done = forget("--yes", "--output", "json")
    assert done.exit_code == 0, done.stderr
    assert [(row["broker"], row["forgets"]) for row in json.loads(done.stdout)] == [
        ("a", 1),
        ("b", None),
    ]
    kept = json.loads((site.data("names") / "brokerEpochs.json").read_bytes())
    assert kept["epochs"] == {}
    other = invoke("broker", "forget-epoch", "a", "--data", str(site.data("one")))
    assert other.exit_code == 3


def test_members_whose_log_has_a_made_up_epoch_follow_each_other_again(site: Site) -> None:
    names = site.start_nameserver()
    master = site.start("one", "--role", "sync_master")
    slave = site.start("two", "--role", "sync_master", "--broker-id", "1")
    site.produce("before")
    assert is_soon(lambda: site.members() == {0: 1, 1: 1})
    master.end()
    slave.end()
    names.end()
    site.poison_nameserver()
    log_end = site.kept("two")["confirmed"]
    for machine in ("one", "two"):
        epochs = [[1, 0], [MADE_UP + 1, log_end]]
        site.poison(machine, highestEpoch=MADE_UP + 1, epochs=epochs)
        assert "repair-epoch" in refused_start(site, machine)
    names = site.start_nameserver()
    for machine in ("one", "two"):
        words = ("a", "--data", str(site.data(machine)))
        alone = site.repair(*words)  # the other one is down, or was never noted
        assert alone.exit_code == 2
        assert "by --epoch" in alone.stderr
        done = site.repair(*words, "--epoch", "2")
        assert done.exit_code == 0, done.stderr
        assert site.kept(machine)["epochs"] == [[1, 0], [2, log_end]]
    slave = site.start("two", "--role", "sync_master", "--broker-id", "1")
    master = site.start("one", "--role", "sync_master")
    assert is_soon(lambda: "repair-epoch" in master.log.read_text())
    names.end()
    of_names = ("a", "--data", str(site.data("names")), "--member", master.broker)
    alone = site.repair(*of_names)
    assert alone.exit_code == 2
    assert "the members are unknown" in alone.stderr
    done = site.repair(*of_names, "--member", slave.broker)
    assert done.exit_code == 0, done.stderr
    site.start_nameserver()
    assert is_soon(lambda: site.members() == {0: 2, 1: 2})
    site.produce("after")
    assert site.bodies() == ["before", "after"]


def test_directory_that_is_not_the_brokers_is_refused(site: Site) -> None:
    names = site.start_nameserver()
    site.start("one")
    other = site.start("other", name="b")
    site.produce("before")
    other.end()
    assert site.members() == {0: 1}
    of_other = ("--data", str(site.data("other")))
    refusals: list[tuple[tuple[str, ...], int, str]] = [
        (("a b", *of_other), 2, "may have only letters"),
        (("a", *of_other, "--member", "nowhere"), 2, "HOST:PORT"),
        (("a", "--data", str(site.folder / "absent")), 3, "absent"),
        (("a", "--data", str(site.folder)), 3, "of no broker and no NameServer"),
        (("a", *of_other, "--epoch", "0"), 2, "x>=1"),
        (("a", *of_other), 2, "holds store"),
        (("c", *of_other), 3, "no NameServer and no member knows broker c"),
        (("b", *of_other, "--cluster", "C"), 3, "of cluster C"),
        (("a", "--data", str(site.data("one"))), 1, "in use"),
    ]
    for words, code, reason in refusals:
        refused = site.repair(*words)
        assert refused.exit_code == code, (words, refused.output)
        assert reason in refused.output, (words, refused.output)
    names.end()
    of_names = ("--data", str(site.data("names")), "--epoch", "5")
    assert site.repair("c", *of_names).exit_code == 3
    done = site.repair("a", *of_names)
    assert (done.exit_code, "nothing to repair" in done.stdout) == (0, True), done.output
