"""The audit trail of services as processes: who did what, in private files, whatever the disk."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from ternmq_model.address import parse_address
from ternmq_model.errors import PermissionRefused, RefusedError
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import PUT_TOPIC, SEND, UPDATE_SETTINGS
from ternmq_remoting.system_environment import system_environment
from ternmq_remoting.tls import CREDENTIALS_VARIABLE, Credentials
from tests.support.disks import memory_disk
from tests.support.processes import (
    ServiceProcess,
    eventually,
    running_broker,
    running_dev,
    running_nameserver,
)
from tests.support.users import Users, token_of

BODY: Final = b"a body that no line may have"
SMALLEST: Final = 64 << 10
TIMEOUT_S: Final = 30.0


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@asynccontextmanager
async def connected_as(user: str, address: str, number: int = 0) -> AsyncGenerator[Connection]:
    """Connect with the token of a user; empty = without."""
    token = token_of(user, number)[0] if user else ""
    async with system_environment(credentials=Credentials(token=token)) as env:
        connection = await env.network.connect([parse_address(address, setting="address")])
        try:
            yield connection
        finally:
            await connection.close()


async def put_topic(connection: Connection, topic: str) -> None:
    config = common.TopicConfig(topic=topic, read_queues=1, write_queues=1, permissions=6)
    request = admin.PutTopicRequest(topic=config)
    await connection.call(PUT_TOPIC, request, timeout_s=TIMEOUT_S)


def words(path: Path, **settings: int) -> list[str]:
    given = {"file": path} | settings
    return [word for name, value in given.items() for word in ("--set", f"audit.{name}={value}")]


def test_cluster_with_users_writes_who_did_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = tmp_path / "credentials.toml"
    credentials.write_text(f'token = "{token_of("broker-a")[0]}"\n')
    credentials.chmod(0o600)
    monkeypatch.setenv(CREDENTIALS_VARIABLE, str(credentials))
    of_names, of_broker = tmp_path / "names.jsonl", tmp_path / "broker.jsonl"
    users = Users()
    users.add("broker-a", "replicate cluster")
    users.add("shop", "publish topic:orders")

    async def main(nameserver: str, broker: ServiceProcess) -> None:
        async with connected_as("", nameserver) as nobody:
            await users.put(nobody)
        async with connected_as("root", broker.broker) as root:
            assert await eventually(lambda: is_known(root))
        request = messages.SendRequest(topic="orders", body=BODY)
        async with connected_as("shop", broker.broker) as shop:
            await shop.call(SEND, request, timeout_s=TIMEOUT_S)
            request.topic = "flights"
            for _ in range(3):
                with pytest.raises(PermissionRefused):
                    await shop.call(SEND, request, timeout_s=TIMEOUT_S)
        async with connected_as("shop", broker.broker, number=7) as thief:
            with pytest.raises(PermissionRefused, match="token is wrong"):
                await thief.call(SEND, request, timeout_s=TIMEOUT_S)
        assert await eventually(lambda: len(lines(of_broker)) >= 5)

    async def is_known(root: Connection) -> bool:
        await put_topic(root, "orders")
        return any(each["user"] == "root" for each in lines(of_broker))

    with (
        running_nameserver(tmp_path / "names", *words(of_names)) as names,
        running_broker(tmp_path / "broker-a", names.nameserver, *words(of_broker)) as broker,
    ):
        asyncio.run(main(names.nameserver, broker))
        assert of_broker.stat().st_mode & 0o777 == of_names.stat().st_mode & 0o777 == 0o600
    (put,) = [each for each in lines(of_names) if each["action"] == "PutAccess"]
    assert (put["event"], put["user"], put["outcome"]) == ("admin", None, "allowed")
    assert "added user shop" in put["details"]
    found = lines(of_broker)
    changed = [each for each in found if each["event"] == "admin" and each["user"] == "root"]
    assert changed[0]["action"] == "PutTopic"
    assert changed[0]["resource"] == "topic:orders"
    refused = [each for each in found if each["event"] == "refused"]
    assert [
        (each["user"], each["claimed"], each["resource"], each["count"]) for each in refused
    ] == [
        ("shop", None, "topic:flights", 1),
        (None, "shop", None, 1),
        ("shop", None, "topic:flights", 2),  # written at the end
    ]
    sessions = [each["user"] for each in found if each["event"] == "session"]
    assert set(sessions) == {"root", "shop"}
    written = of_broker.read_text() + of_names.read_text()
    for secret in (BODY.decode(), *(token_of(name)[0][-20:] for name in ("root", "shop"))):
        assert secret not in written
    assert token_of("shop", 7)[0][-20:] not in written


def test_files_are_rotated_and_private(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    calls = 85  # with lines of 2.8 KiB more than three files, and less than a host's budget

    async def main(broker: str) -> None:
        async with connected_as("", broker) as client:
            for number in range(calls):
                request = admin.UpdateSettingsRequest(values={f"no_such_{number}": "x" * 4000})
                with pytest.raises(RefusedError):
                    await client.call(UPDATE_SETTINGS, request, timeout_s=TIMEOUT_S)

    with running_dev(tmp_path / "dev", *words(path, max_bytes=SMALLEST, files=3)) as dev:
        asyncio.run(main(dev.broker))
    files = [path, path.with_name("audit.jsonl.1"), path.with_name("audit.jsonl.2")]
    assert sorted(tmp_path.glob("audit*")) == files
    for each in files:
        assert each.stat().st_mode & 0o777 == 0o600
        assert each.stat().st_size <= SMALLEST
    found = [one["details"] for each in reversed(files) for one in lines(each)]
    found = [each for each in found if each.startswith("no_such")]
    assert len(found) < calls
    kept = [f"no_such_{number}=" for number in range(calls - len(found), calls)]
    assert [each.partition("=")[0] + "=" for each in found] == kept


def fill(path: Path) -> None:
    """Write a file until its disk is full."""
    with suppress(OSError), path.open("wb", 0) as file:
        while True:
            file.write(bytes(4096))


def test_full_disk_fails_no_call_and_leaves_whole_lines(tmp_path: Path) -> None:
    with memory_disk(tmp_path / "disk", size_bytes=SMALLEST) as disk:
        path, filler = disk / "audit.jsonl", disk / "filler"

        async def main(dev: ServiceProcess) -> None:
            async with connected_as("", dev.broker) as client:
                await put_topic(client, "before")
                assert await eventually(lambda: bool(lines(path)))
                fill(filler)
                for number in range(30):
                    await put_topic(client, f"topic-{number}")
                assert await eventually(lambda: "not written" in dev.log.read_text())
                filler.unlink()
                await put_topic(client, "after")
                assert await eventually(lambda: "topic=after" in lines(path)[-1]["details"])

        with running_dev(tmp_path / "dev", *words(path)) as dev:
            asyncio.run(main(dev))
        assert dev.log.read_text().count("audit trail not written") == 1
        names = [each["resource"] for each in lines(path) if each["action"] == "PutTopic"]
        expected = ["before", *(f"topic-{number}" for number in range(30)), "after"]
        assert names == [f"topic:{name}" for name in expected]
