"""`ternmq group …` and `ternmq dlq …` as a user has them, against `ternmq dev`."""

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.messages import split_messages
from ternmq_client.config import ClientConfig
from ternmq_model.address import parse_address
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.rpc import UnaryRpc
from ternmq_remoting.service_methods import PULL, REGISTER_BROKER, SEND_BACK, UNREGISTER_BROKER
from ternmq_remoting.system_environment import system_environment
from tests.support.console import invoke, json_of, text_of
from tests.support.processes import ServiceProcess, free_port, running_dev


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_dev(tmp_path_factory.mktemp("dev")) as running:
        yield running


class Shell:
    """Runs verbs against one cluster."""

    def __init__(self, dev: ServiceProcess) -> None:
        self.nameserver = dev.nameserver

    def json(self, *arguments: str) -> Any:
        return json_of(*arguments, "--nameserver", self.nameserver)

    def produce(self, topic: str, text: str) -> None:
        text_of("produce", topic, "--nameserver", self.nameserver, stdin=text)

    def refused(self, code: int, *arguments: str, stdin: str = "") -> None:
        done = invoke(*arguments, "--nameserver", self.nameserver, stdin=stdin)
        assert done.exit_code == code, done.stderr


@pytest.fixture
def shell(dev: ServiceProcess) -> Shell:
    return Shell(dev)


def give_up(nameserver: str, topic: str, group: str) -> None:
    """Let a group send the first message of a topic's first queue to its dead letters."""

    async def main() -> None:
        config = ClientConfig(nameservers=(nameserver,))
        async with AdminClient(client=config) as admin, system_environment() as env:
            (data,) = await admin.brokers()
            assert data.master is not None
            connection = await env.network.connect(data.master.endpoints[-1:], timeout_s=30)
            everything = messages.Subscription(expression="*")
            pull = messages.PullRequest(topic=topic, subscription=everything)
            pulled = await connection.call(PULL, pull, timeout_s=30)
            message, *_ = split_messages(pulled.records, pulled.record_sizes, data.broker_name)
            failed = groups.FailedMessage(
                physical_offset=message.physical_offset,
                message_id=message.message_id,
                topic=topic,
                delay_level=-1,
            )
            request = groups.SendBackRequest(group=group, client_id="a@1", messages=[failed])
            reply = await connection.call(SEND_BACK, request, timeout_s=30)
            assert [each.code for each in reply.outcomes] == [0]
            await connection.close()

    asyncio.run(main())


def test_group_is_created_altered_reset_cloned_and_deleted(shell: Shell) -> None:
    shell.json("group", "create", "readers", "--retries", "3", "--no-broadcast")
    (settings,) = shell.json("group", "describe", "readers")["settings"]
    assert (settings["retries_max"], settings["broadcast_enabled"]) == (3, False)
    shell.json("group", "alter", "readers", "--retry-queues", "2", "--broadcast")
    (settings,) = shell.json("group", "describe", "readers")["settings"]
    assert (settings["retries_max"], settings["retry_queues"]) == (3, 2)
    assert settings["broadcast_enabled"]
    shell.json("topic", "create", "lines", "--queues", "1")
    shell.produce("lines", "1\n2\n3\n")
    (change,) = shell.json("group", "reset", "readers", "--topic", "lines", "--to-last")
    assert (change["before"], change["after"]) == (-1, 3)
    queue = f"{change['broker']}/0"
    (change,) = shell.json(
        "group", "reset", "readers", "--topic", "lines", "--to-offset", "1", "--queue", queue
    )
    assert (change["before"], change["after"]) == (3, 1)
    shell.json("group", "reset", "readers", "--topic", "lines", "--to-first", "--dry-run")
    (change,) = shell.json("group", "clone", "readers", "others")
    assert change["after"] == 1
    assert {"group": "others"} in shell.json("group", "list")
    shell.json("group", "delete", "readers")
    assert {"group": "readers"} not in shell.json("group", "list")


def test_long_group_of_rocketmqs_store_is_shown_altered_cloned_and_deleted(
    tmp_path: Path,
) -> None:
    name = "g" * 200
    with running_dev(tmp_path) as dev:
        shell = Shell(dev)
        shell.json("topic", "create", "lines", "--queues", "1")
        shell.produce("lines", "1\n2\n3\n")
        shell.json("group", "create", "G")
        shell.json("group", "reset", "G", "--topic", "lines", "--to-offset", "1")
    for table in ("subscriptionGroup.json", "consumerOffset.json"):
        path = dev.data / "broker/config" / table
        content = json.loads(path.read_text().replace('"G"', f'"{name}"').replace("@G", f"@{name}"))
        del content["crc32"]  # as RocketMQ writes it
        path.write_text(json.dumps(content))
    with running_dev(tmp_path) as dev:
        shell = Shell(dev)
        (row,) = (each for each in shell.json("offset", "show") if each["group"] == name)
        assert row["lag"] == 2
        assert {"topic": "lines", "group": name, "lag": 2}.items() <= shell.json(
            "stats", "all", "lines"
        )[0].items()
        assert [row["committed"] for row in shell.json("offset", "show", name)] == [1]
        shell.json("group", "alter", name, "--retries", "3")
        (settings,) = shell.json("group", "describe", name)["settings"]
        assert settings["retries_max"] == 3
        shell.refused(2, "group", "create", "h" * 121)
        shell.refused(2, "group", "clone", name, "h" * 121)
        (change,) = shell.json("group", "clone", name, "short")
        assert change["after"] == 1
        shell.json("group", "reset", name, "--topic", "lines", "--to-last")
        shell.json("group", "delete", name)
        assert {"group": name} not in shell.json("group", "list")


def test_mistakes_are_reported_with_their_exit_codes(shell: Shell) -> None:
    shell.refused(3, "group", "delete", "nobody")
    shell.refused(3, "group", "alter", "nobody", "--retries", "1")
    shell.refused(2, "group", "alter", "nobody")
    shell.refused(2, "group", "create", "no@good")
    shell.refused(2, "group", "create", "readers2", "--retries", "-1")
    shell.refused(2, "group", "reset", "readers", "--topic", "lines")
    shell.refused(2, "group", "reset", "readers", "--topic", "t", "--to-first", "--queue", "x")
    shell.refused(1, "group", "create", "TOOLS_CONSUMER")
    shell.refused(3, "dlq", "show", "nobody")
    shell.refused(3, "dlq", "drop", "nobody", "--yes")
    shell.refused(3, "dlq", "redrive", "nobody", "--all")
    shell.refused(2, "dlq", "redrive", "nobody")
    shell.refused(1, "dlq", "drop", "nobody", stdin="n\n")


def test_dead_letters_are_listed_shown_redriven_and_dropped(shell: Shell) -> None:
    shell.json("topic", "create", "bills", "--queues", "1")
    shell.produce("bills", "pay\n")
    give_up(shell.nameserver, "bills", "payers")
    (counts,) = (each for each in shell.json("dlq", "list") if each["group"] == "payers")
    assert (counts["waiting"], counts["kept"]) == (1, 1)
    (letter,) = shell.json("dlq", "show", "payers")
    assert (letter["origin_topic"], letter["body"], letter["tries"]) == ("bills", "pay", 1)
    (planned,) = shell.json("dlq", "redrive", "payers", "--all", "--dry-run")
    assert planned["outcome"] == "would be sent"
    by_id = ("dlq", "redrive", "payers", "--message-id", letter["message_id"], "--to-group")
    (done,) = shell.json(*by_id)
    assert (done["topic"], done["outcome"]) == ("%RETRY%payers", "sent")
    (done,) = shell.json("dlq", "redrive", "payers", "--all")
    assert (done["topic"], done["outcome"]) == ("bills", "sent")
    assert shell.json("dlq", "show", "payers") == []
    (letter,) = shell.json("dlq", "show", "payers", "--handled", "--hex")
    assert letter["body"] == "0x706179"
    assert shell.json("dlq", "drop", "payers", "--yes")["dropped"] == 0
    shell.json("dlq", "drop", "payers", "--delete", "--yes")
    assert shell.json("dlq", "show", "payers") == []


def told(address: str, rpc: UnaryRpc[Any, Any], request: Message) -> None:
    """Have the service at an address answer one request."""

    async def main() -> None:
        async with system_environment() as env:
            peer = parse_address(address, setting="")
            connection = await env.network.connect([peer], timeout_s=30)
            await connection.call(rpc, request, timeout_s=30)
            await connection.close()

    asyncio.run(main())


@contextmanager
def silent_broker(shell: Shell) -> Generator[str]:
    """Register a broker at a port where nobody listens; give what is said of it."""
    name, port = "gone", free_port()
    register = nameserver.RegisterBrokerRequest(
        cluster="DefaultCluster",
        broker_name=name,
        endpoints=[common.Endpoint(host="127.0.0.1", port=port)],
        data_version=common.DataVersion(timestamp_ms=1),
        incarnation="1",
    )
    unregister = nameserver.UnregisterBrokerRequest(
        cluster="DefaultCluster", broker_name=name, incarnation="1"
    )
    told(shell.nameserver, REGISTER_BROKER, register)
    yield f"ternmq: no answer from broker {name} (127.0.0.1:{port}): "
    told(shell.nameserver, UNREGISTER_BROKER, unregister)


def test_silent_broker_costs_every_verb_one_line_and_the_exit_code(shell: Shell) -> None:
    shell.json("topic", "create", "half", "--queues", "1", "--broker", "broker-a")
    shell.produce("half", "one\n")
    shell.json("group", "create", "half-readers", "--broker", "broker-a")
    shell.json(
        "group", "reset", "half-readers", "--topic", "half", "--to-first", "--queue", "broker-a/0"
    )
    give_up(shell.nameserver, "half", "half-readers")
    with silent_broker(shell) as line_begin:
        for verb in (
            ("topic", "describe", "half"),
            ("topic", "status", "half"),
            ("topic", "offsets", "half", "--at", "0"),
            ("group", "list"),
            ("group", "describe", "half-readers"),
            ("group", "consumers", "half-readers"),
            ("group", "producers"),
            ("offset", "show"),
            ("offset", "show", "half-readers"),
            ("stats", "show"),
            ("stats", "top"),
            ("stats", "all"),
            ("message", "print", "half"),
            ("dlq", "list"),
            ("dlq", "show", "half-readers"),
        ):
            done = invoke(*verb, "--nameserver", shell.nameserver, "--json")
            assert done.exit_code == 4, (verb, done.stderr)
            assert json.loads(done.stdout) or verb[1] in ("consumers", "producers"), verb
            (line,) = done.stderr.splitlines()
            assert line.startswith(line_begin), verb
        shell.refused(4, "topic", "alter", "half", "--queues", "2")
        shell.refused(4, "group", "alter", "half-readers", "--retries", "3")
        shell.refused(4, "group", "describe", "nobody")
