"""A broker, and our own clients, on the data directory of Apache RocketMQ.

Its clock stands at the store's last timestamp: delayed messages would be overdue otherwise.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Final

from ternmq_broker.state.delay_offsets import DelayOffsets
from ternmq_broker.state.fastjson import parse_json
from ternmq_broker.state.table_formats import parse_table
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_model.message import Message
from ternmq_model.names import is_system_topic
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.service_methods import DESCRIBE_TOPIC
from ternmq_store.config import StoreConfig
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem
from ternmq_testing.time.virtual_time import EPOCH_MS, run_in_virtual_time
from tests.support.rocketmq import Line, contents, copy_in, manifest, unpack_store
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

DATA: Final = Path("/broker")
STORE: Final = StoreConfig(
    commit_log_file_bytes=65_536, consume_queue_file_units=100, index_slots=500, index_entries=400
)


def consumer_of(cluster: SimulatedCluster, group: str = "") -> PullConsumer:
    """Return a consumer, not entered."""
    return PullConsumer(group, nameserver=NAMESERVER, env=cluster.environment("client"))


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


def test_our_clients_consume_append_and_find_messages_over_a_restart(tmp_path: Path) -> None:
    root = unpack_store(tmp_path)
    records = list(manifest(root, "record"))
    units = [u for u in manifest(root, "unit") if not is_system_topic(u["topic"])]
    topics = sorted({u["topic"] for u in units if not u["topic"].startswith("%")})
    units = [u for u in units if u["topic"] in topics]
    assert {"Orders", "Batch", "Pay", "Later", "Big"} <= set(topics)
    before = contents(root)
    last_ms = max(line["storeTimestamp"] for line in records)

    async def main() -> None:
        async with simulated_cluster(brokers=(), store=STORE) as cluster:
            for host in ("a", "client", "producer"):
                cluster.clock_offsets_ms[host] = last_ms - EPOCH_MS
            cluster.disks["a"] = PowerLossFileSystem()
            copy_in(cluster.disks["a"], root, DATA)
            await cluster.start("a")
            async with consumer_of(cluster) as consumer, cluster.producer() as producer:
                check_messages(await read_all(consumer, topics), units, records)
                for number in range(20):
                    await producer.send(Message("Orders", b"new %d" % number, keys=["new"]))
            assert set((await created(cluster, topics)).values()) == {0}
            await cluster.put_topic("New")
            assert (await created(cluster, ["New"]))["New"] > 0
            await cluster.stop("a")
            check_bytes(cluster.disks["a"], before, records)
            await cluster.start("a")
            async with consumer_of(cluster, "CG_fail") as consumer:
                found = await read_all(consumer, topics)
                old = [m for m in found if not m.body.startswith(b"new ")]
                check_messages(old, units, records)
                assert Counter(m.topic for m in found if m not in old) == {"Orders": 20}
                kept = parse_json(before["config/consumerOffset.json"].decode())["offsetTable"]
                for queue in await consumer.queues("Batch"):
                    offset = kept["Batch@CG_fail"][str(queue.queue_id)]
                    assert await consumer.committed(queue) == offset

    run_in_virtual_time(main())


async def created(cluster: SimulatedCluster, topics: list[str]) -> dict[str, int]:
    """Return where the log ended when topics were created."""
    asked = {topic: admin.DescribeTopicRequest(topic=topic) for topic in topics}
    return {
        topic: (await cluster.ask("a", DESCRIBE_TOPIC, request)).created_log_offset
        for topic, request in asked.items()
    }


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
            assert parse_table(now) == parse_table(content)
        elif name == "config/transactionMetrics":
            assert json.loads(now) == json.loads(content)


def table(content: bytes) -> dict[int, int]:
    """Return the offsets of the delay levels."""
    offsets = DelayOffsets.from_dict(parse_json(content.decode()), now_ms=0)
    return {level: offsets.get(level) for level in range(1, 19)}
