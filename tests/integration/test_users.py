"""Users and permissions of services as processes, by the console: tokens from cradle to grave."""

import asyncio
import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.certificates import authority, credentials_file, tls_words
from tests.support.console import invoke
from tests.support.processes import (
    SOON_S,
    TERNMQ,
    ServiceProcess,
    eventually,
    running_broker,
    running_nameserver,
)

IN_FORCE_S = 5.0
"""Time in which a change reaches the services: a second, with reserve for a busy machine."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Console with credentials, against one NameServer."""

    nameserver: str
    credentials: Path | None = None

    def run(self, words: str, *more: str, stdin: str = "") -> Result:
        """Run a verb: words of a line, and those that may have blanks."""
        shown = ("--credentials", str(self.credentials)) if self.credentials else ()
        own = (*words.split(), *more, "--nameserver", self.nameserver)
        return invoke(*shown, *own, stdin=stdin)

    def is_allowed(self, words: str) -> bool:
        """Run a verb; return whether it succeeds rather than fails."""
        done = self.run(words)
        assert done.exit_code in (0, 1), (words, done.output)
        return done.exit_code == 0

    def ok(self, words: str, *more: str) -> str:
        """Run a verb to its end, which has to be a good one, and return what it prints."""
        done = self.run(words, *more)
        assert done.exit_code == 0, (words, done.output)
        return done.stdout

    def refused(self, words: str, *more: str, code: int = 1) -> str:
        """Run a verb that is refused, and return its line on standard error."""
        done = self.run(words, *more)
        assert done.exit_code == code, (words, done.output)
        [line] = done.stderr.splitlines()
        return line

    def as_user(self, credentials: Path) -> "Operator":
        """Return the console with other credentials."""
        return Operator(self.nameserver, credentials)


def until(holds: Callable[[], bool], timeout_s: float = IN_FORCE_S) -> bool:
    # A verb has an event loop of its own.
    return asyncio.run(eventually(lambda: asyncio.to_thread(holds), timeout_s))


def launched_with(credentials: Path) -> tuple[str, ...]:
    return (*TERNMQ, "--credentials", str(credentials))


def first_users(names: ServiceProcess, folder: Path) -> Operator:
    """Create an administrator and the user of brokers; return the administrator's console."""
    file = folder / "root.toml"
    Operator(names.nameserver).ok("user create root --yes --credentials-file", str(file))
    root = Operator(names.nameserver, file)
    root.ok("user create member --credentials-file", str(folder / "member.toml"))
    root.ok("acl grant member replicate cluster")
    return root


@dataclass(frozen=True, slots=True)
class Cluster:
    """Running services whose users are `root`, `member` and `shop`, who sends to `orders`."""

    folder: Path
    root: Operator
    shop: Operator


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with running_nameserver(folder / "names") as names:
        root = first_users(names, folder)
        launcher = launched_with(folder / "member.toml")
        with running_broker(folder / "broker-a", names.nameserver, launcher=launcher):
            root.ok("topic create orders --queues 1")
            root.ok("user create shop --credentials-file", str(folder / "shop.toml"))
            root.ok("acl grant shop publish topic:ord*")
            yield Cluster(folder, root, root.as_user(folder / "shop.toml"))


SEND = "message send orders --body x"


def test_user_may_do_what_is_granted_and_nothing_else(cluster: Cluster) -> None:
    assert until(lambda: cluster.shop.is_allowed(SEND))
    assert "may not subscribe to topic:orders" in cluster.shop.refused("message print orders")
    for words in ("user list", "acl list", "broker settings broker-a", "user create other"):
        assert "user 'shop' may not" in cluster.shop.refused(words)
    nobody = Operator(cluster.root.nameserver)
    for words in (SEND, "topic list", "user list", "acl grant anonymous admin *"):
        assert "an unknown identity may not" in nobody.refused(words)
    # An administrator may give itself the permission to read messages, and does not have it.
    assert "may not subscribe to topic:orders" in cluster.root.refused("message print orders")
    cluster.root.ok("acl grant root subscribe topic:orders")
    assert until(lambda: cluster.root.is_allowed("message print orders"))
    cluster.root.ok("acl revoke root subscribe topic:orders")


def test_denial_wins_and_test_names_the_deciding_grant(cluster: Cluster) -> None:
    root = cluster.root
    assert "shop allow publish topic:ord*" in root.ok("acl test shop publish topic:orders")
    root.ok("acl grant shop publish topic:orders --deny")
    assert until(lambda: not cluster.shop.is_allowed(SEND))
    done = root.run("acl test shop publish topic:orders --json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert (found["allowed"], found["reason"]) == (False, "shop deny publish topic:orders")
    assert "is about this" in root.run("acl test shop admin cluster").stdout
    assert root.run("acl revoke shop publish topic:orders").exit_code == 3
    root.ok("acl revoke shop publish topic:orders --deny")
    assert until(lambda: cluster.shop.is_allowed(SEND))
    rows = json.loads(root.ok("acl list --user shop --json"))
    assert rows == [
        {"user": "shop", "effect": "allow", "action": "publish", "resource": "topic:ord*"}
    ]


def test_topics_of_services_follow_their_group_or_the_cluster(cluster: Cluster) -> None:
    root = cluster.root
    for words, code in (
        ("shop publish topic:RMQ_SYS_TRACE_TOPIC", 0),
        ("anonymous publish topic:RMQ_SYS_TRACE_TOPIC", 1),
        ("member replicate cluster", 0),
        ("shop subscribe topic:TBW102", 1),
        ("root subscribe topic:TBW102", 0),
        ("root subscribe topic:orders", 1),
        ("none publish topic:orders", 3),
        ("shop replicate topic:orders", 2),
    ):
        assert root.run(f"acl test {words}").exit_code == code, words


def test_token_is_rotated_and_revoked_without_a_gap(cluster: Cluster) -> None:
    root, folder = cluster.root, cluster.folder
    root.ok("user create printer --expires 90d --credentials-file", str(folder / "old.toml"))
    root.ok("acl grant printer publish topic:orders")
    rotated = json.loads(
        root.ok("user rotate printer --json --credentials-file", f"{folder}/new.toml")
    )
    old, new = (root.as_user(folder / f"{name}.toml") for name in ("old", "new"))
    for printer in (old, new):
        assert until(lambda: printer.is_allowed(SEND))  # noqa: B023
    assert "at most 2 tokens" in root.refused("user rotate printer", code=2)
    tokens = json.loads(root.ok("user show printer --json"))["tokens"]
    [first] = [each["id"] for each in tokens if each["id"] != rotated["token_id"]]
    assert root.run("user revoke printer 00000000").exit_code == 3
    root.ok("user revoke printer", first)
    assert until(lambda: not old.is_allowed(SEND))
    line = old.refused(SEND)
    assert "token is wrong, revoked or expired" in line
    assert "tmq." not in line
    new.ok(SEND)
    root.ok("user remove printer")
    assert until(lambda: not new.is_allowed(SEND))
    assert root.run("user show printer").exit_code == 3
    assert "printer" not in root.ok("user list") + root.ok("acl list")


def test_printed_token_is_alone_on_its_line_and_in_no_log(cluster: Cluster) -> None:
    root = cluster.root
    done = root.run("user create reader")
    [token] = done.stdout.splitlines()
    assert token.startswith("tmq.reader.")
    assert token not in done.stderr
    printed = json.loads(root.ok("user rotate reader --json"))["token"]
    assert printed.startswith("tmq.reader.")
    for secret in (token, printed):
        assert secret not in root.ok("user list") + root.ok("user show reader --json")
        for log in cluster.folder.glob("*/log"):
            assert secret.rpartition(".")[2] not in log.read_text()
        for file in cluster.folder.glob("names/data/access.json*"):
            assert secret.rpartition(".")[2] not in file.read_text()


def test_last_administrator_stays(cluster: Cluster) -> None:
    root = cluster.root
    [token] = json.loads(root.ok("user show root --json"))["tokens"]
    for words in (
        "user remove root",
        f"user revoke root {token['id']}",
        "acl revoke root admin *",
        "acl grant root admin cluster --deny",
    ):
        assert "must keep admin on the cluster" in root.refused(words, code=2)
    assert "exists" in root.refused("user create root", code=2)


def test_first_user_is_confirmed_and_anonymous_may_be_granted_before(tmp_path: Path) -> None:
    with running_nameserver(tmp_path / "names") as names:
        nobody = Operator(names.nameserver)
        nobody.ok("acl grant anonymous admin topic:*")
        done = nobody.run("user create root", stdin="n\n")
        assert (done.exit_code, done.stdout) == (1, "")
        assert "refused, brokers and slaves included" in " ".join(done.stderr.split())
        assert json.loads(nobody.ok("user list --json")) == []
        assert "token or" in nobody.refused("user create root --no-token --yes", code=2)
        done = nobody.run("user create root", stdin="y\n")
        assert done.exit_code == 0
        file = tmp_path / "root.toml"
        file.touch(mode=0o600)
        file.write_text(f'token = "{done.stdout.strip()}"\n')
        rows = json.loads(nobody.as_user(file).ok("acl list --json"))
        assert {(row["user"], row["resource"]) for row in rows} == {
            ("anonymous", "topic:*"),
            ("root", "*"),
        }
        assert "an unknown identity" in nobody.refused("user list")


def test_lost_administrator_is_replaced_at_one_of_two_nameservers(tmp_path: Path) -> None:
    with running_nameserver(tmp_path / "a") as a:
        root = first_users(a, tmp_path)
        peers = ("--set", f"nameserver.peers={a.nameserver}")
        launcher = launched_with(tmp_path / "member.toml")
        with running_nameserver(tmp_path / "b", *peers, launcher=launcher) as b:
            there = Operator(b.nameserver, root.credentials)
            assert until(lambda: there.is_allowed("user list"))
            words = ("user", "recover", "ada", "--data", str(a.data))
            running = invoke(*words)
            assert running.exit_code == 1
            assert "in use" in running.stderr
            a.end()
            there.ok("user create late --no-token")  # which the one that is recovered never gets
            file = tmp_path / "ada.toml"
            done = invoke(*words, "--credentials-file", str(file))
            assert done.exit_code == 0, done.stderr
            with running_nameserver(tmp_path / "a", port=a.nameserver.rpartition(":")[2]):
                ada = there.as_user(file)
                assert until(lambda: ada.is_allowed("user list"), SOON_S)
                assert "late" not in ada.ok("user list")
                ada.ok("user remove root")
                assert until(lambda: not there.is_allowed("user list"))


def test_subject_of_a_certificate_is_an_identity_until_it_is_denied(tmp_path: Path) -> None:
    trusted = authority(tmp_path / "certificates")
    root, shop = (credentials_file(trusted, name) for name in ("root", "shop"))
    with running_nameserver(tmp_path / "names", *tls_words(trusted, "names")) as names:
        operator = Operator(names.nameserver, root)
        operator.ok("user create root --no-token --subject CN=root --yes")
        operator.ok("user create shop --no-token")
        operator.ok("acl grant shop admin cluster")
        client = operator.as_user(shop)
        assert "an unknown identity" in client.refused("user list")
        operator.ok("user subject shop --add CN=shop")
        client.ok("user list")
        assert "same subject" in operator.refused("user subject root --add CN=shop", code=2)
        operator.ok("user deny-certificate --subject CN=shop")
        assert "denied" in client.refused("user list")
        assert "CN=shop" in operator.ok("user deny-certificate")
        operator.ok("user undeny-certificate --subject CN=shop")
        client.ok("user list")
        operator.ok("user subject shop --remove CN=shop")
        assert "an unknown identity" in client.refused("user list")
