"""A broker that is reached by IPv6: hosts of 20 bytes all the way."""

import asyncio
import socket
from pathlib import Path

import pytest

from ternmq_broker.broker import Broker
from ternmq_broker.config import BrokerConfig
from ternmq_model.message_id import host_text
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_remoting.system_environment import system_environment
from ternmq_store.config import StoreConfig
from tests.support.brokers import Client, bodies, stored

STORE = StoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_units=1000,
    index_slots=1000,
    index_entries=4000,
)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_records_carry_ipv6_hosts_end_to_end(tmp_path: Path) -> None:
    async def main() -> None:
        config = BrokerConfig(data=tmp_path, nameservers=(), listen="::1", port=0)
        async with (
            asyncio.timeout(120),
            system_environment() as env,
            Broker(config, STORE, env) as broker,
        ):
            connection = await env.network.connect(
                [broker.address], expect=broker.identity, timeout_s=30
            )
            client = Client(connection)
            sender = await client.open_sender()
            assert (len(sender.opened.born_host), len(sender.opened.store_host)) == (20, 20)
            await sender.send(*(sender.record("A", b"%d" % number) for number in range(3)))
            one = await client.send("A", b"typed", queue_id=0, properties={"TAGS": "t"})
            assert len(one.offset_message_id) == 56
            found = stored(await client.pull("A", 0))
            assert [message.body for message in found] == [b"0", b"1", b"2", b"typed"]
            for message in found:
                assert message.store_host == f"[::1]:{broker.address.port}"
                assert message.born_host.startswith("[::1]:")
                assert "__CRC32#" not in message.properties
            assert host_text(sender.opened.born_host) == found[0].born_host
            puller = await client.open_puller("G")
            await puller.subscribe(1, "A")
            got: list[bytes] = []
            while len(got) < 4:
                for pulled in await puller.read():
                    got += bodies(pulled)
            assert got == [b"0", b"1", b"2", b"typed"]
            request = messages.ViewMessageRequest(offset_message_id=one.offset_message_id)
            assert b"typed" in (await client.call(service_methods.VIEW_MESSAGE, request)).record
            await client.connection.close()

    asyncio.run(main())
