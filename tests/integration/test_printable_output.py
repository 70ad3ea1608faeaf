"""Every verb, shown texts that want to reach the terminal as more than text."""

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import click
import pytest
from click.testing import CliRunner, Result

from ternmq_console.cli.lazy_group import LazyGroup
from ternmq_console.cli.output import PrintableStream
from ternmq_console.main import ternmq
from ternmq_model.printable_text import printable
from ternmq_nameserver.epoch_table import EpochTable
from ternmq_runtime.table_store import save_table
from ternmq_security.access.access_table import AccessTable, first_administrator
from ternmq_security.access.user import User
from tests.support.brokers import connected
from tests.support.hostile_peer import BROKER, HOSTILE, PROPERTIES
from tests.support.processes import (
    TERNMQ,
    kill,
    running_dev,
    running_nameserver,
    start_module,
)

SHOWN: Final = printable("\x1b[2J\r\n\t\x7f\x9b31m\u2028\u202e\u2066y")
Words = tuple[str, ...]

ASKING: Final[Mapping[Words, Words]] = {
    ("topic", "create"): ("T",),
    ("topic", "alter"): ("T", "--queues", "2"),
    ("topic", "list"): ("--all",),
    ("topic", "describe"): ("T",),
    ("topic", "status"): ("T",),
    ("topic", "routes"): ("T",),
    ("topic", "order"): ("T",),
    ("topic", "offsets"): ("T", "--at", "0"),
    ("topic", "delete"): ("T",),
    ("group", "create"): ("G",),
    ("group", "alter"): ("G", "--retries", "3"),
    ("group", "list"): ("--with-system",),
    ("group", "describe"): ("G",),
    ("group", "consumers"): ("G",),
    ("group", "producers"): (),
    ("group", "reset"): ("G", "--topic", "T", "--to-first"),
    ("group", "clone"): ("G", "H"),
    ("group", "delete"): ("G",),
    ("dlq", "list"): (),
    ("dlq", "show"): ("G", "--handled"),
    ("dlq", "redrive"): ("G", "--all", "--dry-run"),
    ("dlq", "drop"): ("G", "--yes"),
    ("cluster", "list"): (),
    ("cluster", "clean"): (BROKER,),
    ("cluster", "status"): (),
    ("cluster", "wipe-write-permission"): (BROKER,),
    ("message", "get"): ("K", "--topic", "T"),
    ("message", "query"): ("--topic", "T", "--key", "K"),
    ("message", "query-by-offset"): ("T", "--broker", BROKER, "--queue", "0", "--offset", "0"),
    ("message", "print"): ("T",),
    ("transaction", "list"): (),
    ("transaction", "rollback"): ("--query", "Q", "--force", "--yes"),
    ("message", "trace"): ("K",),
    ("explain",): ("K",),
    ("message", "send"): ("T", "--body", HOSTILE),
    ("offset", "show"): ("G",),
    ("offset", "skip"): ("G", "T"),
    ("stats", "all"): (),
    ("stats", "top"): (),
    ("stats", "show"): (),
    ("broker", "status"): (BROKER,),
    ("broker", "ha"): (BROKER,),
    ("broker", "promote"): (BROKER, "--broker-id", "1", "--yes"),
    ("broker", "settings"): (BROKER,),
    ("broker", "set-permission"): (BROKER, "r"),
    ("broker", "clean"): (BROKER,),
    ("broker", "drain"): (BROKER,),
    ("broker", "undrain"): (BROKER,),
    ("pipeline", "report"): (),
    ("user", "create"): ("B",),
    ("user", "list"): (),
    ("user", "show"): ("A",),
    ("user", "rotate"): ("A",),
    ("user", "revoke"): ("A", "t"),
    ("user", "remove"): ("B",),
    ("user", "subject"): ("A", "--add", "CN=a"),
    ("user", "deny-certificate"): (),
    ("user", "undeny-certificate"): ("--serial", "1f"),
    ("acl", "list"): (),
    ("acl", "grant"): ("A", "publish", "topic:T"),
    ("acl", "revoke"): ("A", "admin", "cluster"),
    ("acl", "test"): ("A", "publish", "topic:T"),
}
"""Verbs that ask a cluster, with arguments that make them show all they can."""

SILENT: Final = {
    *{("topic", verb) for verb in ("create", "describe", "status", "order", "offsets", "delete")},
    *{("group", "create"), ("group", "delete"), ("offset", "skip")},
    *{("cluster", "clean"), ("cluster", "wipe-write-permission")},
    *{("broker", verb) for verb in ("clean", "drain", "promote", "set-permission", "undrain")},
    *{("message", "send"), ("transaction", "rollback")},
    *{("user", verb) for verb in ("create", "rotate", "remove")},
    *{("acl", verb) for verb in ("list", "grant", "revoke", "test")},
}
"""Those of them that show no text of the cluster's but names of brokers, and refusals."""


def leaves(group: click.Group, above: Words = ()) -> Iterator[tuple[Words, click.Command]]:
    """Yield every verb below a group; the group itself when it is one, too."""
    if group.invoke_without_command:
        yield above, group
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, LazyGroup):
            yield from leaves(command, (*above, name))
        else:
            yield (*above, name), command


VERBS: Final = dict(leaves(ternmq))


@pytest.fixture(scope="module", params=["", "names", "refusing"])
def peer(request: pytest.FixtureRequest) -> Generator[tuple[str, str]]:
    """Give what is hostile, and the address of a NameServer."""
    process = start_module("tests.support.hostile_peer", *request.param.split())
    assert process.stdout is not None
    try:
        yield request.param, f"127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        kill(process)


def run(*words: str) -> Result:
    """Run a verb as on a terminal with colours, where click takes nothing away."""
    return CliRunner().invoke(ternmq, words, color=True)


def harmful(text: str) -> list[str]:
    """Return what a terminal would do something with."""
    kinds, harmless = ("Cc", "Cf", "Cs", "Zl", "Zp"), "\n\u00ad\u200c\u200d"
    return [one for one in text if unicodedata.category(one) in kinds and one not in harmless]


def assert_harmless(done: Result) -> None:
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    assert not harmful(done.stdout), done.stdout
    assert not harmful(done.stderr), done.stderr
    assert not any(line.endswith("\\r") for line in done.output.splitlines()), "a forged line"


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a JSON document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in cast("Sequence[Any]", value):
            yield from texts_in(one)
    elif isinstance(value, dict):
        for name, one in cast("dict[str, Any]", value).items():
            yield from (name, *texts_in(one))


def with_options(verb: Words, nameserver: str, *more: str) -> Sequence[str]:
    return (*verb, *ASKING[verb], *more, "--nameserver", nameserver)


@pytest.mark.parametrize("verb", ASKING, ids=" ".join)
def test_asking_verb_shows_hostile_replies_as_escapes(verb: Words, peer: tuple[str, str]) -> None:
    hostile, nameserver = peer
    in_text = run(*with_options(verb, nameserver))
    assert_harmless(in_text)
    in_json = run(*with_options(verb, nameserver, "--json"))
    assert_harmless(in_json)
    told = list(texts_in(json.loads(in_json.stdout))) if in_json.stdout else []
    if not hostile and verb not in SILENT:
        assert SHOWN in in_text.output or "ternmq: x" in in_text.stderr, in_text.output
        assert not told or any(HOSTILE in text for text in told)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_refused_words_of_a_command_line_are_shown_as_escapes(verb: Words) -> None:
    done = run(*verb, f"--{HOSTILE}")
    assert done.exit_code == 2, done.output
    assert_harmless(done)
    assert printable(f"--{HOSTILE}") in done.stderr
    done = run(*verb, *(HOSTILE,) * 9)
    takes_them_all = verb == ("topic", "create")
    assert done.exit_code == (4 if takes_them_all else 2), done.output
    assert_harmless(done)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, Path]]:
    """Give a NameServer's address, and a data directory with hostile messages."""

    async def send(broker: str) -> None:
        async with connected(broker) as client:
            await client.put_topic("T", 1)
            properties = dict.fromkeys(PROPERTIES, HOSTILE)
            for _ in range(3):
                await client.send("T", HOSTILE.encode() + b"\xff", properties=properties)

    with running_dev(tmp_path_factory.mktemp("dev")) as dev:
        asyncio.run(send(dev.broker))
        yield dev.nameserver, dev.data / "broker"


@pytest.mark.parametrize("options", [(), ("--json",), ("--raw",)])
def test_consume_shows_hostile_bodies_as_escapes_unless_they_are_wanted_raw(
    options: Words, data: tuple[str, Path]
) -> None:
    words = ("consume", "T", "--group", "G" + "".join(options).strip("-"), "--max", "1", *options)
    done = run(*words, "--nameserver", data[0])
    assert done.exit_code == 0, done.output
    if options == ("--raw",):
        assert done.stdout_bytes == HOSTILE.encode() + b"\xff\n"
        return
    if not options:
        assert done.stdout == printable(HOSTILE, keep="\t") + "\\xff\n"
        return
    assert_harmless(done)
    assert json.loads(done.stdout)["properties"][HOSTILE] == HOSTILE


def test_raw_bodies_never_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def isatty(_: PrintableStream) -> bool:
        return True

    monkeypatch.setattr(PrintableStream, "isatty", isatty, raising=False)
    done = run("consume", "T", "--group", "G", "--raw", "--nameserver", "127.0.0.1:1")
    assert done.exit_code == 2
    assert "not printed on a terminal" in done.stderr


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_produce_shows_refused_words_as_escapes(options: Words, data: tuple[str, Path]) -> None:
    words = ("T", "--property", HOSTILE, "--nameserver", data[0], *options)
    done = run("produce", *words)
    assert done.exit_code == 2
    assert_harmless(done)
    assert r"\x1b[2J" in done.stderr


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("verb", ["dump", "check", "repair"])
def test_store_verbs_show_hostile_records_and_names_as_escapes(
    verb: str, options: Words, data: tuple[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "x\x1b[2J\r\n\t\x7f\x9b31m"

    def copy_if_there(source: str, target: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # the broker runs, and replaces files
            shutil.copy2(source, target)

    shutil.copytree(
        data[1], folder, ignore=shutil.ignore_patterns("lock"), copy_function=copy_if_there
    )
    (folder / "consumequeue" / "x\x1b[2J" / "0").mkdir(parents=True)
    (folder / "commitlog" / "\x9b31m\n").write_bytes(b"12")
    with (folder / "consumequeue" / "T" / "0" / "00000000000000000000").open("r+b") as units:
        units.write(b"\0" * 20)
    if verb == "repair":
        options = ("--dry-run",)
    done = run("store", verb, str(folder), *options)
    assert_harmless(done)
    assert r"\x1b[2J" in done.output or r"\u001b[2J" in done.output, done.output
    if options == ("--json",):
        for line in done.stdout.splitlines():
            json.loads(line)


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("verb", ["repair-epoch", "forget-epoch"])
def test_verbs_of_epochs_show_hostile_names_and_replies_as_escapes(
    verb: str, options: Words, peer: tuple[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "x\x1b[2J\r\n\t\x7f\x9b31m"
    folder.mkdir()
    save_table(folder / "brokerEpochs.json", EpochTable({("DefaultCluster", HOSTILE): 5}))
    words = ("--data", str(folder), *options)
    if verb == "repair-epoch":
        words = ("--epoch", "5", "--nameserver", peer[1], *words)
    done = run("broker", verb, HOSTILE, *words)
    assert_harmless(done)
    assert r"x\x1b" in done.output or r"x\u001b" in done.output, done.output


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_verbs_of_certificates_show_hostile_names_as_escapes(
    options: Words, tmp_path: Path
) -> None:
    folder = tmp_path / "x\x1b[2J\r\n\t\x7f\x9b31m"
    out = ("--out", str(folder))
    for words, exit_code in (
        (("ca", "--name", "x\x1b[2J\x9b31m", *out, *options), 0),
        (("issue", "a", *out, *options), 0),
        (("issue", HOSTILE, *out, *options), 2),
        (("issue", "a", "--host", HOSTILE, *out, *options), 2),
        (("show", str(folder / "ca.pem"), *options), 0),
        (("show", str(folder / "missing.pem"), *options), 3),
    ):
        done = run("cert", *words)
        assert done.exit_code == exit_code, done.output
        assert_harmless(done)
        assert re.search(r"x\\+(x1b|u001b|1B)", done.output), done.output


def test_generated_files_and_their_errors_show_hostile_words_as_escapes() -> None:
    for words, exit_code in (
        (("prometheus-rules", "--job", "x\x1b[2J"), 0),
        (("prometheus-rules", "--runbooks", "x\x1b[2J"), 0),
        (("prometheus-rules", "--set", "x\x1b[2J=3"), 2),
        (("prometheus-rules", "--out", "/proc/x\x1b[2J"), 3),
        (("grafana", "--out", "/proc/x\x1b[2J"), 3),
    ):
        done = run("generate", *words)
        assert done.exit_code == exit_code, done.output
        assert_harmless(done)
        assert re.search(r"x\\+(x1b|u001b)", done.output), done.output


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_recovery_of_users_shows_hostile_words_as_escapes(options: Words, tmp_path: Path) -> None:
    folder = tmp_path / "x\x1b[2J\r\n\t\x7f\x9b31m"
    words = ("--data", str(folder), "--credentials-file", str(folder / "ada.toml"), *options)
    done = run("user", "recover", "ada", *words)
    assert done.exit_code == 3, done.output
    assert_harmless(done)
    (folder / "nameserver.lock").mkdir(parents=True)
    done = run("user", "recover", HOSTILE, *words)
    assert done.exit_code == 2, done.output
    assert_harmless(done)
    root = first_administrator(AccessTable(), User("root", (), ("CN=root",)), "test")
    save_table(folder / "access.json", root)
    done = run("user", "recover", "ada", *words)
    assert done.exit_code == 0, done.output
    assert_harmless(done)
    assert re.search(r"x\\+(x1b|u001b)", done.stdout), done.output


@pytest.mark.parametrize("verb", ["dev", "nameserver", "broker"])
def test_services_show_refused_settings_as_escapes(verb: str) -> None:
    done = run(verb, "--set", f"broker.{HOSTILE}={HOSTILE}", "--set", f"nameserver.port={HOSTILE}")
    assert done.exit_code == 2, done.output
    assert_harmless(done)
    assert r"\x1b[2J" in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_verb_with_a_closed_standard_stream_ends_as_otherwise(closed: str) -> None:
    words = ("sh", "-c", f'"$@" {closed}', "sh", *TERNMQ, "health", "127.0.0.1:1")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr


def test_service_starts_with_standard_error_closed(tmp_path: Path) -> None:
    closing = ("sh", "-c", 'exec "$@" 2>&-', "sh", *TERNMQ)
    with running_nameserver(tmp_path, launcher=closing) as service:
        assert run("health", service.nameserver).exit_code == 0
    assert service.process.returncode == 0


def test_health_shows_refused_addresses_as_escapes() -> None:
    done = run("health", HOSTILE)
    assert done.exit_code == 2, done.output
    assert_harmless(done)
    assert r"\x1b[2J" in done.stderr


ELSEWHERE: Final = {
    *{("consume",), ("produce",), ("health",), ("dev",), ("nameserver",), ("broker",)},
    *{("store", verb) for verb in ("dump", "check", "repair")},
    *{("broker", verb) for verb in ("repair-epoch", "forget-epoch")},
    *{("cert", verb) for verb in ("ca", "issue", "show")},
    *{("generate", what) for what in ("grafana", "prometheus-rules")},
    ("user", "recover"),
}
"""Verbs with a test of their own here."""

UNREACHED: Final = {
    ("pipeline", "archive"): "Spark prints the same lines in its own tests",
    ("pipeline", "replay"): "Spark prints the same lines in its own tests",
    ("pipeline", "redrive"): "Spark prints the same lines in its own tests",
}


def test_every_verb_is_tried_with_hostile_texts() -> None:
    assert set(VERBS) == set(ASKING) | ELSEWHERE | set(UNREACHED)
    assert len(UNREACHED) <= 3
    assert set(ASKING) > SILENT
