"""A broker, and our own clients, on the data directory of Apache RocketMQ.

Its clock stands at the store's last timestamp: delayed messages would be overdue otherwise.
"""

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

from ternmq_broker import Broker, BrokerConfig
from ternmq_broker.delay_offsets import DelayOffsets
from ternmq_broker.loose_json import parse_json
from ternmq_consumer.pull import PullConsumer
from ternmq_model.message import Message
from ternmq_model.names import is_system_topic
from ternmq_model.stored_message import StoredMessage
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_producer.producer import Producer
from ternmq_remoting.environment import Environment
from ternmq_store.config import StoreConfig
from tests.support.files import MemoryFileSystem, Node
from tests.support.memory_network import MemoryNetwork
from tests.support.rocketmq import Line, contents, manifest, unpack_store
from tests.support.virtual_time import EPOCH_MS, InlineBlocking, VirtualClock, run_in_virtual_time

DATA: Final = Path("/broker")
NAMESERVER: Final = "ns:9876"
STORE: Final = StoreConfig(
    commit_log_file_bytes=65_536, consume_queue_file_units=100, index_slots=500, index_entries=400
)
CONFIG: Final = BrokerConfig(
    data=DATA,
    listen="0.0.0.0",
    port=10_911,
    hostname="broker",
    store_host="10.0.0.1",
    nameservers=(NAMESERVER,),
    memory_bytes=1 << 30,
)


def in_memory(root: Path) -> MemoryFileSystem:
    """Return a disk with the store on it."""
    files = MemoryFileSystem()
    for name, content in contents(root).items():
        data = np.frombuffer(content, dtype=np.uint8).copy()
        files.make_folder((DATA / name).parent)
        files.nodes[DATA / name] = Node(data, data.copy(), len(data))
    return files


class Site:
    """The machines: their network, and the broker's disk."""

    def __init__(self, network: MemoryNetwork, files: MemoryFileSystem, now_ms: int) -> None:
        self.files = files
        self._network = network
        self._clock = VirtualClock()
        self._clock.wall_offset_ms = now_ms - EPOCH_MS

    def environment(self, host: str) -> Environment:
        """Return the seams as `host` has them."""
        network = self._network.host(host)
        blocking = InlineBlocking(lambda: 0.0)
        return Environment(clock=self._clock, network=network, random=Random(3), blocking=blocking)

    def nameserver(self) -> NameServer:
        """Return a NameServer, not entered."""
        config = NameServerConfig(listen="0.0.0.0", port=9876, data=None)
        return NameServer(config, self.environment("ns"))

    def broker(self) -> Broker:
        """Return the broker, not entered."""
        return Broker(CONFIG, STORE, self.environment("broker"), files=self.files)

    def consumer(self, group: str = "") -> PullConsumer:
        """Return a consumer, not entered."""
        return PullConsumer(group, nameserver=NAMESERVER, env=self.environment("client"))


async def read_all(consumer: PullConsumer, topics: list[str]) -> list[StoredMessage]:
    """Return every message of `topics`."""
    consumer.assign([queue for topic in topics for queue in await consumer.queues(topic)])
    await consumer.seek_to_begin()
    found: list[StoredMessage] = []
    while messages := await consumer.poll(timeout_s=2):
        found += messages
    return found


def check_messages(found: list[StoredMessage], units: list[Line], records: list[Line]) -> None:
    """Compare messages with the manifest's records, queue by queue."""
    by_offset = {line["physicalOffset"]: line for line in records}
    expected = {
        (u["topic"], u["queueId"], u["queueOffset"]): by_offset[u["physicalOffset"]] for u in units
    }
    places = [(m.topic, m.queue.queue_id, m.queue_offset) for m in found]
    assert sorted(places) == sorted(expected)
    for message, place in zip(found, places, strict=True):
        line = expected[place]
        assert message.offset_message_id == line["msgId"]
        assert message.born_at_ms == line["bornTimestamp"]
        assert message.stored_at_ms == line["storeTimestamp"]
        assert message.reconsume_times == line["reconsumeTimes"]
        assert message.tags == line["properties"].get("TAGS", "")
        assert list(message.keys) == line["properties"].get("KEYS", "").split()
        if not line["sysFlag"] & 1:
            assert len(message.body) == line["bodyLength"]


def test_our_clients_consume_append_and_find_all_again_after_a_restart(tmp_path: Path) -> None:
    root = unpack_store(tmp_path)
    records = list(manifest(root, "record"))
    units = [u for u in manifest(root, "unit") if not is_system_topic(u["topic"])]
    topics = sorted({u["topic"] for u in units if not u["topic"].startswith("%")})
    units = [u for u in units if u["topic"] in topics]
    assert {"Orders", "Batch", "Pay", "Later", "Big"} <= set(topics)
    before = contents(root)
    last_ms = max(line["storeTimestamp"] for line in records)

    async def main() -> None:
        async with MemoryNetwork(Random(3)) as network:
            site = Site(network, in_memory(root), last_ms)
            async with site.nameserver():
                async with site.broker(), site.consumer() as consumer:
                    check_messages(await read_all(consumer, topics), units, records)
                    async with Producer(
                        "ours", nameserver=NAMESERVER, env=site.environment("p")
                    ) as p:
                        for number in range(20):
                            await p.send(Message("Orders", b"new %d" % number, keys=["new"]))
                check_bytes(site.files, before, records)
                async with site.broker(), site.consumer("CG_fail") as consumer:
                    found = await read_all(consumer, topics)
                    old = [m for m in found if not m.body.startswith(b"new ")]
                    check_messages(old, units, records)
                    assert Counter(m.topic for m in found if m not in old) == {"Orders": 20}
                    kept = parse_json(before["config/consumerOffset.json"].decode())["offsetTable"]
                    for queue in await consumer.queues("Batch"):
                        offset = kept["Batch@CG_fail"][str(queue.queue_id)]
                        assert await consumer.committed(queue) == offset

    run_in_virtual_time(main())


def check_bytes(files: MemoryFileSystem, before: dict[str, bytes], records: list[Line]) -> None:
    """Check that what RocketMQ wrote is there still, byte for byte."""
    end = records[-1]["physicalOffset"] + records[-1]["size"]
    for name, content in before.items():
        now = files.nodes[DATA / name].data.tobytes()
        if name.startswith("commitlog/"):
            kept = max(0, min(len(content), end - int(Path(name).name)))
            assert now[:kept] == content[:kept], name
        elif name.startswith("consumequeue/"):
            assert now.startswith(content.rstrip(b"\0")), name
        elif name == "config/delayOffset.json":
            assert table(now) == table(content)
        elif name in ("config/consumerFilter.json", "config/consumerOrderInfo.json"):
            assert parse_json(now.decode()) == parse_json(content.decode())
        elif name == "config/transactionMetrics":
            assert json.loads(now) == json.loads(content)


def table(content: bytes) -> dict[int, int]:
    """Return the offsets of the delay levels."""
    offsets = DelayOffsets.from_dict(parse_json(content.decode()), now_ms=0)
    return {level: offsets.get(level) for level in range(1, 19)}
