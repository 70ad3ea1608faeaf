"""Services with TLS as processes: a cluster, renewed certificates, the move of a running one."""

import asyncio
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ternmq import (
    ClientConfig,
    ConsumeFrom,
    Credentials,
    Message,
    PermissionRefused,
    Producer,
    PushConsumer,
    PushConsumerConfig,
    StoredMessage,
    TernError,
)
from tests.support.certificates import Authority, authority, credentials_file, tls_words
from tests.support.processes import (
    SOON_S,
    TERNMQ,
    ServiceProcess,
    eventually,
    free_port,
    run_ternmq,
    running_broker,
    running_nameserver,
)
from tests.support.users import Users, token_of


@pytest.fixture
def trusted(tmp_path: Path) -> Authority:
    return authority(tmp_path / "certificates")


def credentials_of(trusted: Authority) -> Credentials:
    return Credentials.from_file(credentials_file(trusted, "application"))


@dataclass
class Load:
    """Bodies of the acknowledged messages of a load, and the errors of the others."""

    sent: list[bytes] = field(default_factory=list[bytes])
    errors: list[TernError] = field(default_factory=list[TernError])


@asynccontextmanager
async def sending(client: ClientConfig) -> AsyncGenerator[Load]:
    """Send numbered messages one after the other while the block runs."""
    load, is_over = Load(), asyncio.Event()

    async def send(producer: Producer) -> None:
        while not is_over.is_set():
            body = b"%d" % len(load.sent)
            try:
                await producer.send(Message("orders", body))
            except TernError as error:
                load.errors.append(error)
            else:
                load.sent.append(body)

    async with Producer("shop", client=client) as producer, asyncio.TaskGroup() as group:
        group.create_task(send(producer))
        assert await eventually(lambda: bool(load.sent))
        try:
            yield load
        finally:
            is_over.set()


async def consumed(client: ClientConfig, count: int) -> list[bytes]:
    """Return the bodies of a new group, once there are `count` different ones."""
    found: list[bytes] = []

    async def take(message: StoredMessage) -> None:
        found.append(message.body)

    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
    async with PushConsumer("audit", {"orders": "*"}, listener=take, config=config, client=client):
        await eventually(lambda: len(set(found)) >= count)
    return found


def test_slave_and_console_of_a_cluster_with_tls(tmp_path: Path, trusted: Authority) -> None:
    words, slave_words = tls_words(trusted, "broker-a"), ("--broker-id", 1, "--role", "slave")
    credentials = credentials_file(trusted, "application")

    async def send(client: ClientConfig) -> None:
        async with Producer("shop", client=client) as producer:
            for number in range(20):
                await producer.send(Message("orders", b"%d" % number))

    with (
        running_nameserver(tmp_path / "names", *tls_words(trusted, "names")) as names,
        running_broker(tmp_path / "broker-a", names.nameserver, *words, "--role", "sync_master"),
        running_broker(
            tmp_path / "slave", names.nameserver, *words, *slave_words, name="broker-a"
        ) as slave,
    ):
        client = ClientConfig(nameservers=(names.nameserver,), credentials=credentials_of(trusted))
        asyncio.run(send(client))
        printed = run_ternmq(
            "cluster", "status", "--nameserver", names.nameserver, credentials=credentials
        )
        assert "healthy" in printed
        assert run_ternmq("health", slave.broker, credentials=credentials)
        promotion = "broker promote broker-a --broker-id 1 --yes --force --nameserver"
        run_ternmq(*promotion.split(), names.nameserver, credentials=credentials)
        assert set(asyncio.run(consumed(client, 20))) == {b"%d" % number for number in range(20)}
        # Without credentials nobody learns anything.
        refused = subprocess.run(
            [*TERNMQ, "cluster", "status", "--nameserver", names.nameserver],
            capture_output=True,
            text=True,
            timeout=SOON_S,
        )
        assert refused.returncode == 4, refused.stdout + refused.stderr


def test_certificates_are_renewed_under_load_without_an_error(
    tmp_path: Path, trusted: Authority
) -> None:
    async def main(nameserver: str) -> None:
        client = ClientConfig(nameservers=(nameserver,), credentials=credentials_of(trusted))
        async with sending(client) as load:
            for _ in range(5):
                for name in ("names", "broker-a", "application"):
                    trusted.issue(name)
                before = len(load.sent)
                async with Producer("shop", client=client) as producer:  # by new handshakes
                    await producer.send(Message("orders", b"new"))
                assert await eventually(lambda: len(load.sent) > before + 20)  # noqa: B023
        assert load.errors == []
        assert {*load.sent, b"new"} == set(await consumed(client, len(load.sent) + 1))

    with (
        running_nameserver(tmp_path / "names", *tls_words(trusted, "names")) as names,
        running_broker(tmp_path / "broker-a", names.nameserver, *tls_words(trusted, "broker-a")),
    ):
        asyncio.run(main(names.nameserver))


@dataclass
class MovingCluster:
    """A NameServer and two brokers, which are started again one by one with other words."""

    folder: Path
    stack: ExitStack
    services: dict[str, ServiceProcess] = field(default_factory=dict[str, ServiceProcess])

    def start(self, name: str, nameserver: str = "", *words: object, port: int) -> None:
        if name in self.services:
            self.services.pop(name).end()
        folder = self.folder / name
        self.services[name] = self.stack.enter_context(
            running_broker(folder, nameserver, *words, port=port)
            if nameserver
            else running_nameserver(folder, *words, port=port)
        )


def test_running_cluster_moves_to_tls_and_users_while_all_clients_send(
    tmp_path: Path, trusted: Authority
) -> None:
    brokers = ("broker-a", "broker-b")
    plain = {name: free_port() for name in ("names", *brokers)}
    secure = {name: free_port() for name in plain}
    old, new = (f"127.0.0.1:{ports['names']}" for ports in (plain, secure))
    root = Credentials.from_file(credentials_file(trusted, "root", token_of("root")[0]))
    users, everybody = Users(), ("publish *", "subscribe *", "admin topic:*")
    for name in brokers:
        users.add(name, "replicate cluster", subjects=(f"CN={name}",))
    users.add("shop", *everybody, subjects=("CN=application",))
    for each in everybody:
        users.allow("anonymous", each)

    def both(name: str) -> Sequence[object]:
        role = "nameserver" if name == "names" else "broker"
        return (*tls_words(trusted, name), "--set", f"{role}.plain_port={plain[name]}")

    async def main(cluster: MovingCluster) -> None:
        async def start(name: str, nameserver: str, words: Sequence[object], port: int) -> None:
            await asyncio.to_thread(cluster.start, name, nameserver, *words, port=port)
            await asyncio.sleep(1)

        before = ClientConfig(nameservers=(old,))
        after = ClientConfig(nameservers=(new,), credentials=credentials_of(trusted))
        async with AsyncExitStack() as loads:
            async with sending(before) as plain_load:
                # NameServers first, then brokers: each accepts both.
                await start("names", "", both("names"), secure["names"])
                for name in brokers:
                    await start(name, new, both(name), secure[name])
                # Users next: callers without an identity go on for a while.
                await users.put_at(new, root)
                moved_load = await loads.enter_async_context(sending(after))
                sent = len(plain_load.sent)
                assert await eventually(lambda: len(plain_load.sent) > sent + 20)
            # No client without TLS and identity is left: their permissions and the plain ports go.
            version = users.table.version
            for each in everybody:
                users.revoke("anonymous", each)
            await users.put_at(new, root, version)
            await start("names", "", tls_words(trusted, "names"), secure["names"])
            for name in brokers:
                await start(name, new, tls_words(trusted, name), secure[name])
            sent = len(moved_load.sent)
            assert await eventually(lambda: len(moved_load.sent) > sent + 20)
        assert plain_load.errors == []
        assert moved_load.errors == []
        expected = {*plain_load.sent, *moved_load.sent}
        assert set(await consumed(after, len(expected))) == expected
        with pytest.raises(TernError):
            async with Producer("shop", client=before) as producer:
                await producer.send(Message("orders", b"late"))
        stranger = ClientConfig(
            nameservers=(new,),
            credentials=Credentials.from_file(credentials_file(trusted, "stranger")),
        )
        with pytest.raises(PermissionRefused, match="unknown identity"):
            async with Producer("shop", client=stranger) as producer:
                await producer.send(Message("orders", b"late"))

    with ExitStack() as stack:
        cluster = MovingCluster(tmp_path, stack)
        cluster.start("names", port=plain["names"])
        for name in brokers:
            cluster.start(name, old, port=plain[name])
        asyncio.run(main(cluster))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--tls-cert", "missing.pem"), "tls.cert"),
        (("--tls-client-auth", "required"), "tls.client_auth"),
    ],
)
def test_service_with_settings_that_cannot_work_ends_at_once(
    tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    done = subprocess.run(
        [*TERNMQ, "nameserver", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SOON_S,
    )
    assert done.returncode == 2
    assert text in done.stderr
