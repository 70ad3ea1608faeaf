"""The command line as a user has it, against `ternmq dev`; whatever fails, in processes."""

import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.console import json_of, text_of
from tests.support.processes import TERNMQ, ServiceProcess, running_dev


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_dev(tmp_path_factory.mktemp("dev")) as running:
        yield running


class Console:
    """Runs verbs against one cluster."""

    def __init__(self, dev: ServiceProcess) -> None:
        self._dev = dev

    def run(self, *arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [*TERNMQ, *arguments, "--nameserver", self._dev.nameserver],
            input=stdin,
            capture_output=True,
            timeout=150,
        )

    def text(self, *arguments: str, stdin: str = "") -> str:
        return text_of(*arguments, "--nameserver", self._dev.nameserver, stdin=stdin)

    def json(self, *arguments: str, stdin: str = "") -> Any:
        return json_of(*arguments, "--nameserver", self._dev.nameserver, stdin=stdin)

    def refused(self, code: int, *arguments: str, stdin: bytes = b"") -> str:
        """Run a verb that must fail with `code` and one line; return the line."""
        done = self.run(*arguments, stdin=stdin)
        lines = done.stderr.decode().splitlines()
        assert done.returncode == code, lines
        assert lines[-1].startswith("ternmq: ")
        assert not any("Traceback" in line for line in lines)
        return lines[-1]


@pytest.fixture
def console(dev: ServiceProcess) -> Console:
    return Console(dev)


def test_lines_become_messages_and_are_printed_back(console: Console) -> None:
    assert console.text("produce", "words", stdin="one\ntwo\nthree") == "sent 3\n"
    taken = console.text("consume", "words", "--group", "readers", "--max", "3")
    assert sorted(taken.split()) == ["one", "three", "two"]


def test_consumed_messages_are_not_printed_twice(console: Console) -> None:
    console.text("produce", "pages", "--sharding-key", "k", stdin="1\n2\n3\n4\n")
    first = console.text("consume", "pages", "--group", "book", "--max", "3")
    rest = console.text("consume", "pages", "--group", "book", "--max", "1")
    assert (first.split(), rest.split()) == (["1", "2", "3"], ["4"])


def test_missing_topic_is_waited_for_on_demand(console: Console, dev: ServiceProcess) -> None:
    consume = [*TERNMQ, "consume", "soon", "--group", "g", "--max=1", "--wait"]
    waiting = subprocess.Popen([*consume, "--nameserver", dev.nameserver], stdout=subprocess.PIPE)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.communicate(timeout=3)
        console.text("produce", "soon", stdin="late\n")
        assert waiting.communicate(timeout=120)[0] == b"late\n"
    finally:
        waiting.kill()


def test_message_keeps_its_fields_and_is_found_by_its_id(console: Console) -> None:
    sent = console.json(
        "produce", "tagged", "--tag", "t", "--key", "k1", "--key", "k2", "--property", "a=b=c",
        stdin="body\n",
    )  # fmt: skip
    found = console.json("message", "get", sent["offset_message_id"])
    assert found["message_id"] == sent["message_id"]
    assert (found["topic"], found["tags"], found["keys"]) == ("tagged", "t", ["k1", "k2"])
    assert (found["body"], found["properties"]["a"]) == ("body", "b=c")
    taken = console.json("consume", "tagged", "--group", "g", "--tag", "x || t", "--max=1")
    assert taken["offset_message_id"] == sent["offset_message_id"]
    taken = console.json("consume", "tagged", "--group", "h", "--sql", "a CONTAINS '=c'", "--max=1")
    assert taken["offset_message_id"] == sent["offset_message_id"]
    assert "body" in console.text("message", "get", sent["offset_message_id"])
    for place in ((), ("--topic", "tagged")):
        again = console.json("message", "get", sent["message_id"], *place)
        assert again["offset_message_id"] == sent["offset_message_id"]
    console.refused(3, "message", "get", "0" * 32)
    console.refused(3, "message", "get", sent["message_id"], "--topic", "other")
    for key in ("k2", sent["message_id"]):
        rows = console.json("message", "query", "--topic", "tagged", "--key", key)
        assert [row["offset_message_id"] for row in rows] == [sent["offset_message_id"]]
    console.refused(3, "message", "query", "--topic", "tagged", "--key", "k")
    early = ("--end", "2020-01-01T00:00:00Z")
    console.refused(3, "message", "query", "--topic", "tagged", "--key", "k2", *early)


def test_messages_can_be_delayed(console: Console) -> None:
    console.text("topic", "create", "later", "--queues", "1")
    console.text("produce", "later", "--deliver-after", "2s", stdin="second\n")
    console.text("produce", "later", "--delay-level", "1", stdin="first\n")
    console.text("produce", "later", stdin="now\n")
    taken = console.text("consume", "later", "--group", "g", "--max", "3", "--wait")
    assert sorted(taken.split()) == ["first", "now", "second"]
    console.refused(2, "produce", "later", "--deliver-after", "4d", stdin=b"x\n")


def test_offsets_at_a_time_are_listed(console: Console) -> None:
    for line in ("one\n", "two\n"):
        sent = console.json("produce", "timed", stdin=line)
    stored = console.json("message", "get", sent["offset_message_id"])
    queue, place = stored["queue"], stored["offset"]
    for boundary in ("lower", "upper"):
        rows = console.json(
            "topic", "offsets", "timed", "--at", stored["stored"], "--boundary", boundary
        )
        assert {"broker": "broker-a", "queue": queue, "offset": place} in rows
    rows = console.json("topic", "offsets", "timed", "--at", "4000000000000")
    assert sum(row["offset"] for row in rows) == 2
    assert console.run("topic", "offsets", "timed", "--at", "tomorrow").returncode == 2
    console.refused(3, "topic", "offsets", "nowhere", "--at", "0")


def test_topics_of_a_file_are_created_or_refused_each_alone(
    console: Console, tmp_path: Path
) -> None:
    file = tmp_path / "topics.txt"
    file.write_text("listed-1\n\n listed-2 \nTBW102\nno good\n", encoding="utf-8-sig")
    result = console.run("topic", "create", "--file", str(file), "--queues", "1", "--json")
    assert result.returncode == 1
    rows = json.loads(result.stdout)
    assert [row["topic"] for row in rows] == ["listed-1", "listed-2", "TBW102", "no good"]
    assert [row["brokers"] for row in rows] == [["broker-a"], ["broker-a"], [], []]
    assert "belongs to the broker" in rows[2]["errors"]["broker-a"]
    assert "'no good'" in rows[3]["errors"]["broker-a"]
    rows = console.json("topic", "create", "listed-1", "listed-2", "listed-1")
    assert [row["topic"] for row in rows] == ["listed-1", "listed-2"]
    assert console.run("topic", "create").returncode == 2
    file.write_bytes(b"caf\xe9\n")
    assert "0xe9" in console.run("topic", "create", "--file", str(file)).stderr.decode()
    assert console.run("topic", "create", "--file", str(file)).returncode == 2


def test_topic_is_created_shown_changed_and_deleted(console: Console) -> None:
    assert console.json("topic", "create", "made", "--queues", "3")["brokers"] == ["broker-a"]
    assert [queue["queue"] for queue in console.json("topic", "describe", "made")["queues"]] == [
        0, 1, 2,
    ]  # fmt: skip
    console.text("topic", "create", "made", "--queues", "5", "--permissions", "r")
    changed = console.json("topic", "describe", "made")
    (broker,) = changed["brokers"]
    assert broker["created"].startswith("20")
    assert broker["created_log_offset"] >= 0
    assert (len(changed["queues"]), changed["brokers"][0]["permissions"]) == (5, "R--")
    assert {"topic": "made"} in console.json("topic", "list")
    assert console.json("topic", "delete", "made")["deleted_from"] == ["broker-a"]
    assert "'made'" in console.refused(3, "topic", "describe", "made")
    assert {"topic": "made"} not in console.json("topic", "list")


def test_topic_retention_is_set_and_expired_messages_are_deleted(console: Console) -> None:
    console.text("topic", "create", "prices", "--queues", "3", "--retention", "24h")
    assert console.json("topic", "describe", "prices")["brokers"][0]["retention"] == "1d"
    console.text("topic", "create", "prices", "--queues", "3", "--retention", "25h")
    console.text("topic", "alter", "prices", "--retention", "24h", stdin="y\n")
    refused = console.run("topic", "alter", "prices", "--retention", "90m", stdin=b"")
    assert refused.returncode == 1
    assert b"messages of prices that are 90m old can no longer be read, 1d before" in refused.stderr
    assert console.json("topic", "describe", "prices")["brokers"][0]["retention"] == "1d"
    console.text("topic", "alter", "prices", "--retention", "90m", "--yes")
    console.text("topic", "create", "weekly", "--retention", "7d")
    for verb, *words in (("create", "weekly"), ("alter", "weekly", "--retention", "0")):
        refused = console.run("topic", verb, *words, stdin=b"")
        assert refused.returncode == 1
        assert b"weekly that are 3d old can no longer be read, 7d before" in refused.stderr
    console.text("topic", "create", "weekly", "--cluster", "DefaultCluster", stdin="y\n")
    console.text("topic", "create", "weekly")
    (altered,) = console.json("topic", "describe", "prices")["brokers"]
    assert (altered["retention"], altered["read_queues"]) == ("90m", 3)
    for arguments, says in (((), b"--retention"), (("--retention", "24 hours"), b"'24 hours'")):
        refused = console.run("topic", "alter", "prices", *arguments)
        assert refused.returncode == 2
        assert says in refused.stderr
    (listed,) = console.json("cluster", "list")
    assert listed["disk_level"] in ("normal", "clean", "force")
    refused = console.run("cluster", "clean", listed["broker"], stdin=b"n\n")
    assert refused.returncode == 1
    assert b"older than 72 h" in refused.stderr
    done = console.json("cluster", "clean", listed["broker"], "--yes")
    assert (done["files_deleted"], done["log_min_offset"]) == (0, 0)


def test_system_topics_are_listed_on_demand(console: Console) -> None:
    console.text("topic", "create", "own")
    listed, everything = console.json("topic", "list"), console.json("topic", "list", "--all")
    assert {"topic": "own"} in listed
    assert {"topic": "TBW102"} not in listed
    assert {"topic": "TBW102"} in everything


def test_closed_output_ends_consume_silently(console: Console, dev: ServiceProcess) -> None:
    console.text("produce", "long", stdin="".join(f"{number}\n" for number in range(100)))
    consume = [*TERNMQ, "consume", "long", "--group", "head", "--nameserver", dev.nameserver]
    with subprocess.Popen(consume, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as consuming:
        assert consuming.stdout is not None
        assert consuming.stderr is not None
        try:
            consuming.stdout.close()
            assert consuming.wait(30) == 141
            assert consuming.stderr.read() == b""
        finally:
            consuming.kill()


def test_group_is_shown_with_its_lag(console: Console) -> None:
    console.text("produce", "counted", "--sharding-key", "k", stdin="1\n2\n3\n")
    console.text("consume", "counted", "--group", "counter", "--max", "1")
    assert {"group": "counter"} in console.json("group", "list")
    progress = console.json("group", "describe", "counter")["progress"]
    assert sum(queue["lag"] for queue in progress if queue["topic"] == "counted") == 2
    assert "counted" in console.text("group", "describe", "counter")


def test_cluster_is_listed(console: Console, dev: ServiceProcess) -> None:
    [broker] = console.json("cluster", "list")
    assert (broker["broker"], broker["status"]) == ("broker-a", "serving")
    assert broker["addresses"] == [dev.broker]
    assert "broker-a" in console.text("cluster", "list")


def test_store_counters_are_shown(console: Console) -> None:
    console.text("produce", "counting", stdin="one\ntwo\n")
    told = console.json("broker", "status", "broker-a")
    assert told["topics"]["counting"]["messages"] == 2
    [row] = console.json("broker", "status")
    assert row["broker"] == "broker-a"
    assert row["put_messages"] >= 2
    assert "broker-a" in console.text("broker", "status")
    assert "counting" in console.text("broker", "status", "broker-a")


def test_single_broker_cluster_is_healthy(console: Console) -> None:
    told = console.json("cluster", "status")
    assert (told["healthy"], told["problems"]) == (True, [])
    assert [one["answers"] for one in told["nameservers"]] == [True]
    assert [(one["broker"], one["id"]) for one in told["members"]] == [("broker-a", 0)]
    assert console.text("cluster", "status", "broker-a").splitlines()[-1] == "healthy"


def test_broker_closed_to_senders_is_drained(tmp_path: Path) -> None:
    with running_dev(tmp_path) as cluster:
        console = Console(cluster)
        console.text("produce", "last", stdin="one\n")
        wipe = ("cluster", "wipe-write-permission", "broker-a")
        assert console.json(*wipe)["topics_changed"] > 0
        assert console.json(*wipe)["topics_changed"] == 0
        assert console.run("produce", "last", stdin=b"two\n").returncode != 0
        assert console.text("consume", "last", "--group", "g", "--max", "1") == "one\n"


def test_health_lists_serving_members(dev: ServiceProcess) -> None:
    def health(address: str) -> int:
        return subprocess.run([*TERNMQ, "health", address], capture_output=True).returncode

    assert [health(dev.nameserver), health(dev.broker), health("127.0.0.1:1")] == [0, 0, 4]


def test_consume_refuses_unreadable_topic(console: Console) -> None:
    console.text("topic", "create", "sealed", "--queues", "1", "--permissions", "w")
    assert "'sealed' may not be read" in console.refused(1, "consume", "sealed", "--group", "g")


def test_consume_refuses_group_that_may_not_consume(console: Console) -> None:
    console.text("topic", "create", "open", "--queues", "1")
    console.text("group", "create", "muted", "--no-consume")
    told = console.refused(1, "consume", "open", "--group", "muted")
    assert "'muted' may not consume" in told


LONG = b"x" * ((4 << 20) + 1)


@pytest.mark.parametrize(
    ("code", "arguments", "stdin", "culprit"),
    [
        (2, ("produce", "a b"), b"x\n", "'a b'"),
        (2, ("produce", "../../etc/passwd"), b"x\n", "letters"),
        (2, ("produce", "T" * 128), b"x\n", "127"),
        (2, ("produce", "big"), LONG + b"\n", "4194304"),
        (2, ("produce", "props", "--property", "a=" + "x" * 32_767), b"x\n", "32770 bytes"),
        (2, ("produce", "props", "--property", "a=b\x01c"), b"x\n", "'a'"),
        (2, ("produce", "props", "--property", "a"), b"x\n", "NAME=VALUE"),
        (2, ("produce", "props", "--property", "DELAY=3"), b"x\n", "DELAY"),
        (2, ("produce", "SCHEDULE_TOPIC_XXXX"), b"x\n", "SCHEDULE_TOPIC_XXXX"),
        (2, ("consume", "words", "--group", "a b"), b"", "'a b'"),
        (2, ("consume", "words", "--group", "g" * 121), b"", "120"),
        (2, ("topic", "create", "words", "--queues", "-1"), b"", "-1"),
        (2, ("topic", "create", "words", "--queues", "100000"), b"", "100000"),
        (3, ("topic", "create", "words", "--broker", "nobody"), b"", "nobody"),
        (3, ("message", "get", "xyz"), b"", "'xyz'"),
        (3, ("message", "get", "7F00000100002A9F" + "0" * 16), b"", "7F00000100002A9F"),
        (3, ("topic", "describe", "never"), b"", "'never'"),
        (3, ("consume", "never", "--group", "g"), b"", "never"),
        (3, ("topic", "delete", "never"), b"", "'never'"),
        (3, ("group", "describe", "never"), b"", "'never'"),
        (3, ("cluster", "wipe-write-permission", "nobody"), b"", "nobody"),
        (3, ("cluster", "status", "nobody"), b"", "nobody"),
        (3, ("broker", "status", "nobody"), b"", "nobody"),
        (3, ("broker", "ha", "nobody"), b"", "nobody"),
        (3, ("broker", "settings", "nobody"), b"", "nobody"),
        (2, ("broker", "promote", "", "--broker-id", "1", "--yes"), b"", "broker name ''"),
        (2, ("broker", "promote", "broker-a", "--broker-id", "0", "--yes"), b"", "the master"),
        (3, ("broker", "promote", "broker-a", "--broker-id", "1", "--yes"), b"", "no member 1"),
        (2, ("cluster", "wipe-write-permission", "a b"), b"", "'a b'"),
    ],
)
def test_bad_input_gives_one_line_naming_the_culprit(
    console: Console, code: int, arguments: Sequence[str], stdin: bytes, culprit: str
) -> None:
    before = console.json("cluster", "list")[0]["log_bytes"]
    assert culprit in console.refused(code, *arguments, stdin=stdin)
    [broker] = console.json("cluster", "list")
    assert (broker["log_bytes"], broker["status"]) == (before, "serving")


def test_produce_tells_what_it_sent_before_a_line_that_is_too_long(console: Console) -> None:
    done = console.run("produce", "before", stdin=b"one\ntwo\n" + LONG)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[0] == "sent 2"
    assert console.json("topic", "status", "before")


@pytest.mark.parametrize(
    "verb", [("topic", "list"), ("produce", "T"), ("consume", "T", "--group", "g")]
)
def test_address_without_listener_is_named(verb: Sequence[str]) -> None:
    done = subprocess.run(
        [*TERNMQ, *verb, "--nameserver", "127.0.0.1:1"],
        input=b"x\n", capture_output=True, text=False, timeout=150,
    )  # fmt: skip
    assert done.returncode == 4
    assert "127.0.0.1:1" in done.stderr.decode().splitlines()[-1]


def test_dying_broker_leaves_one_line(tmp_path: Path) -> None:
    with (
        running_dev(tmp_path) as cluster,
        subprocess.Popen(
            [*TERNMQ, "produce", "T", "-o", "json", "--nameserver", cluster.nameserver],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as producing,
    ):
        assert producing.stdin is not None
        assert producing.stdout is not None
        producing.stdin.write(b"one\n")
        producing.stdin.flush()
        assert b"message_id" in producing.stdout.readline()
        cluster.kill()
        _, said = producing.communicate(b"two\n", timeout=150)
        assert producing.returncode == 4
        told, line = said.decode().splitlines()
        assert told == "sent 1"
        assert line.startswith("ternmq: ")


def test_data_directory_held_by_another_broker_is_named(
    dev: ServiceProcess, tmp_path: Path
) -> None:
    folder = str(dev.data)
    second = subprocess.run(
        [*TERNMQ, "dev", "--data", folder, "--port-nameserver", "0", "--port-broker", "0"],
        capture_output=True, text=True, timeout=150, cwd=tmp_path,
    )  # fmt: skip
    assert second.returncode == 1
    assert folder in second.stderr.splitlines()[-1]


def test_port_0_is_any_free_port_and_is_printed(tmp_path: Path) -> None:
    ports = ("--port-nameserver", 0, "--port-broker", 0)
    with ServiceProcess(tmp_path, "dev", *ports) as dev:
        assert int(dev.nameserver.rpartition(":")[2])
        assert int(dev.broker.rpartition(":")[2])


def test_all_bad_settings_are_reported_at_once() -> None:
    done = subprocess.run(
        [*TERNMQ, "dev", "--set", "broker.flush_mod=async", "--set", "broker.port=x"],
        capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.returncode == 2
    assert "did you mean 'broker.flush_mode'" in done.stderr
    assert "broker.port" in done.stderr


def test_taken_port_is_named(dev: ServiceProcess, tmp_path: Path) -> None:
    port = dev.nameserver.rpartition(":")[2]
    done = subprocess.run(
        [*TERNMQ, "nameserver", "--port-nameserver", port],
        capture_output=True, text=True, timeout=150, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert port in done.stderr.splitlines()[-1]
    assert done.stderr.endswith("(choose another: --port-nameserver, 0 = any free)\n")


def test_module_runs_the_installed_command() -> None:
    told = [
        subprocess.run([*command, "--version"], check=True, capture_output=True).stdout
        for command in (TERNMQ, (sys.executable, "-m", "ternmq"))
    ]
    assert told[0] == told[1]
    assert told[0].startswith(b"ternmq, version ")


def test_help_loads_no_heavy_modules() -> None:
    helped = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ternmq_console.main", "--help"],
        check=True,
        capture_output=True,
    )
    assert b"produce" in helped.stdout
    for heavy in (b"grpc", b"numpy", b"rich", b"asyncio"):
        assert heavy not in helped.stderr, f"{heavy.decode()} is imported"


def test_dev_serves_on_every_interface(tmp_path: Path) -> None:
    with running_dev(tmp_path, "--listen", "0.0.0.0") as dev:
        assert dev.nameserver.startswith("0.0.0.0:")
        assert dev.broker_name == "broker-a"
