"""Logs of real services in JSON: each line is an event, and none has a message."""

import asyncio
import base64
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from ternmq import (
    ClientConfig,
    ConsumeFrom,
    Credentials,
    Message,
    Producer,
    PushConsumer,
    PushConsumerConfig,
    StoredMessage,
)
from ternmq_model.address import parse_address
from ternmq_model.errors import TernError
from ternmq_protos.v1 import nameserver_pb2
from ternmq_remoting import service_methods
from tests.support.brokers import connected
from tests.support.certificates import authority, credentials_file, tls_words
from tests.support.processes import (
    ServiceProcess,
    eventually,
    free_port,
    running_broker,
    running_dev,
    running_nameserver,
)

BODY: Final = b"marker-7Qx4-" * 50
"""Body that no other text of these tests resembles."""

TRACES: Final = (BODY[:24], base64.b64encode(BODY)[:32], BODY[:24].hex().encode())
"""Forms in which a log could have the body."""

ODD: Final = 'a"b\\c={d} event=x %s ü'
"""Name of printable characters, the only ones that services accept, which JSON and keys use."""

JSON: Final = ("--log-format", "json", "--set", "logging.level=debug")


def events(log: Path) -> list[dict[str, Any]]:
    """Return the lines of a log, which all have the members of every line."""
    lines: list[dict[str, Any]] = []
    for text in log.read_text().splitlines():
        line = json.loads(text)
        assert {"ts", "level", "logger", "event", "message"} <= line.keys(), line
        assert line["level"] in ("debug", "info", "warning", "error"), line
        assert line["event"], line
        lines.append(line)
    return lines


def named(lines: Sequence[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == event]


async def send(producer: Producer, count: int = 20) -> None:
    messages = [Message("orders", BODY, tags="t", keys=["k"]) for _ in range(count)]
    await producer.send_many(messages)
    await producer.send(Message("orders", BODY, delay_level=1))


def refused_handshake(address: str) -> None:
    """Speak to a port without TLS, as a client with a wrong setting does."""
    host = parse_address(address, setting="address")
    with socket.create_connection((host.host, host.port), timeout=10) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        plain.recv(1)


def test_busy_cluster_logs_events_without_bodies(tmp_path: Path) -> None:
    trusted = authority(tmp_path / "certificates")
    foreign = authority(tmp_path / "foreign")
    words, port = (*tls_words(trusted, "broker-a"), *JSON), free_port()

    async def run(names: ServiceProcess, broker: ServiceProcess) -> ServiceProcess:
        credentials = Credentials.from_file(credentials_file(trusted, "application"))
        client = ClientConfig(nameservers=(names.nameserver,), credentials=credentials)
        seen: list[StoredMessage] = []

        async def fail_at_first(message: StoredMessage) -> bool:
            seen.append(message)
            return message.reconsume_times > 0 or len(seen) % 4 != 0

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with (
            Producer("shop", client=client) as producer,
            PushConsumer(
                "audit", {"orders": "*"}, listener=fail_at_first, config=config, client=client
            ),
        ):
            await send(producer)
            assert await eventually(lambda: len(seen) >= 20)
            await asyncio.to_thread(refused_handshake, broker.broker)
            broker.kill()
            again = running_broker(tmp_path / "broker-a", names.nameserver, *words, port=port)
            await asyncio.to_thread(again.until_ready)
            await send(producer)
            assert await eventually(lambda: len(seen) >= 40)
        stranger = Credentials.from_file(credentials_file(foreign, "stranger"))
        config_of_stranger = ClientConfig(nameservers=(names.nameserver,), credentials=stranger)
        with pytest.raises((TernError, TimeoutError)):
            async with asyncio.timeout(3), Producer("x", client=config_of_stranger) as producer:
                await producer.send(Message("orders", BODY))
        return again

    with running_nameserver(tmp_path / "names", *tls_words(trusted, "names"), *JSON) as names:
        first = running_broker(tmp_path / "broker-a", names.nameserver, *words, port=port)
        with first:
            last = asyncio.run(run(names, first))
        assert last.end() == 0
    of_broker, of_names = events(first.log), events(names.log)
    assert {line["broker"] for line in of_broker} == {"broker-a"}
    assert {line["nameserver"] for line in of_names} == {names.nameserver}
    for event in ("broker_serves", "session_opened", "topic_created", "store_opened"):
        assert named(of_broker, event), event
    assert len(named(of_broker, "broker_serves")) == 2
    assert named(of_broker, "service_stopped")
    assert {line["broker"] for line in named(of_names, "broker_registered")} == {"broker-a"}
    created = named(of_broker, "topic_created")[0]
    assert (created["topic"], created["by"]) == ("orders", "send")
    for log in (first.log, names.log):
        content = log.read_bytes()
        assert not [trace for trace in TRACES if trace in content]


def test_log_of_dev_tells_services_apart_and_keeps_odd_names(tmp_path: Path) -> None:
    async def put(dev: ServiceProcess) -> None:
        request = nameserver_pb2.PutKvRequest(namespace="n", key=ODD, value="v")
        async with connected(dev.nameserver) as client:
            await client.call(service_methods.PUT_KV, request)
        async with connected(dev.broker) as client:
            stream, _ = await client.open_session(ODD)
            stream.cancel()

    with running_dev(tmp_path, *JSON) as dev:
        asyncio.run(put(dev))
    lines = events(dev.log)
    [setting] = named(lines, "setting_put")
    assert setting["key"] == ODD
    assert (setting["nameserver"], "broker" in setting) == (dev.nameserver, False)
    [opened] = [line for line in named(lines, "session_opened") if line["client"] == ODD]
    assert (opened["broker"], "nameserver" in opened) == (dev.broker_name, False)
    assert dev.log.read_text().isascii()
