"""A broker on the data directory of an Apache RocketMQ broker."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from ternmq_broker.broker import Broker
from ternmq_broker.config import BrokerConfig
from ternmq_broker.state.table_formats import parse_table
from ternmq_model.errors import PermissionRefused
from ternmq_model.names import is_read_forbidden
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_remoting.system_environment import system_environment
from ternmq_store.config import StoreConfig
from tests.support.brokers import Client, stored
from tests.support.rocketmq import unpack_store

FILES: Final = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")


def read(root: Path, name: str) -> dict[str, Any]:
    return parse_table((root / "config" / name).read_bytes())


async def queue_ends(client: Client, wanted: Counter[tuple[str, int]]) -> Counter[tuple[str, int]]:
    """Return how many messages each queue has, all of them read."""
    found: Counter[tuple[str, int]] = Counter()
    for topic, queue_id in wanted:
        offset = 0
        while (reply := await client.pull(topic, offset, queue_id=queue_id)).records:
            found[topic, queue_id] += len(stored(reply))
            offset = reply.next_offset
    return found


def test_messages_topics_groups_and_offsets_of_rocketmq_are_served(tmp_path: Path) -> None:
    root = unpack_store(tmp_path)
    before = {name: read(root, name) for name in FILES}
    lines = [
        json.loads(line)
        for line in (tmp_path / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    units = Counter((line["topic"], line["queueId"]) for line in lines if line["kind"] == "unit")
    first = next(line for line in lines if line["kind"] == "record" and line["topic"] == "Orders")

    async def main() -> None:
        config = BrokerConfig(data=root, port=0, nameservers=())
        async with (
            asyncio.timeout(30),
            system_environment() as env,
            Broker(config, StoreConfig(), env) as broker,
        ):
            client = Client(await env.network.connect([broker.address], timeout_s=30))
            for topic, queue_id in [key for key in units if is_read_forbidden(key[0])]:
                with pytest.raises(PermissionRefused, match=topic):
                    await client.pull(topic, 0, queue_id=queue_id)
                del units[topic, queue_id]
            # Six messages of the longest level waited there. Their time has come.
            units.update({("Later", 0): 3, ("Later", 1): 3})
            while (found := await queue_ends(client, units)) != units:
                assert found <= units
                await asyncio.sleep(0.05)
            view = messages.ViewMessageRequest(offset_message_id=first["msgId"])
            assert (await client.call(service_methods.VIEW_MESSAGE, view)).record
            for key, queues in before["consumerOffset.json"]["offsetTable"].items():
                topic, _, group = key.partition("@")
                for queue_id, offset in queues.items():
                    request = groups.QueryOffsetRequest(
                        group=group, topic=topic, queue_id=int(queue_id)
                    )
                    reply = await client.call(service_methods.QUERY_OFFSET, request)
                    assert reply.offset == offset
            sent = await client.send("Orders", b"ours", queue_id=0)
            assert sent.queue_offset == units["Orders", 0]
            await client.put_topic("Ours", 1)
            await client.connection.close()

    asyncio.run(main())
    after = {name: read(root, name) for name in FILES}
    table = after["topics.json"]["topicConfigTable"]
    assert table.pop("Ours")["perm"] == 6
    assert table == before["topics.json"]["topicConfigTable"] | {"TBW102": table["TBW102"]}
    assert after["subscriptionGroup.json"] == before["subscriptionGroup.json"]
    offsets = after["consumerOffset.json"]
    assert offsets["offsetTable"] == before["consumerOffset.json"]["offsetTable"]
