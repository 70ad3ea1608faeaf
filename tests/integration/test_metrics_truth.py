"""Metrics of a broker over real gRPC and HTTP, beside what the test itself sent and received."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ternmq_broker.broker import Broker
from ternmq_broker.config import BrokerConfig
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_remoting.system_environment import system_environment
from ternmq_runtime.metrics.config import MetricsConfig
from ternmq_runtime.metrics.port import metrics_port
from ternmq_store.config import FlushMode, StoreConfig
from tests.support.brokers import Client, connected, membership, stored
from tests.support.metrics_text import Sample, Scraped, answer_of, parsed
from tests.support.processes import eventually, free_port
from tests.support.transactions import COMMIT, ROLLBACK, begin, end

STORE = StoreConfig(
    commit_log_file_bytes=16 << 20,
    consume_queue_file_units=10_000,
    index_slots=1000,
    index_entries=4000,
)
SOON_S = 120.0
QUEUES = 4
DEAD = -1


class Measured:
    """A broker, a client of it, and its port for metrics."""

    def __init__(self, client: Client, url: str) -> None:
        self.client = client
        self._url = url

    async def scrape(self) -> Scraped:
        return Scraped(await asyncio.to_thread(self._read, "text/plain"))

    async def openmetrics(self) -> list[Sample]:
        text = await asyncio.to_thread(self._read, "application/openmetrics-text")
        return parsed(text, is_openmetrics=True)

    def _read(self, media_type: str) -> str:
        status, text = answer_of(f"{self._url}/metrics", media_type, timeout_s=SOON_S)
        assert status == 200
        return text


@asynccontextmanager
async def measured(data: Path) -> AsyncGenerator[Measured]:
    config = BrokerConfig(
        data=data, port=0, nameservers=(), flush_mode=FlushMode.ASYNC, store_host="127.0.0.1"
    )
    async with asyncio.timeout(SOON_S), system_environment() as env:
        broker = Broker(config, STORE, env)
        async with (
            metrics_port(MetricsConfig(port=free_port()), broker) as address,
            broker,
            connected(str(broker.address), expect=broker.identity) as client,
        ):
            yield Measured(client, f"http://{address}")


class Truth:
    """Messages, bytes and offsets that the test sent, got and committed.

    Bytes are those of the records that the broker returned.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.got: Counter[tuple[str, str]] = Counter()
        self.got_bytes: Counter[tuple[str, str]] = Counter()
        self.ends: Counter[tuple[str, str, int]] = Counter()
        self.committed: dict[tuple[str, str, int], int] = {}
        self.pulled: dict[tuple[str, str, int], int] = {}

    def lag(self, group: str, topic: str) -> int:
        """Return how far a group is behind in a topic, in messages."""
        return sum(
            self.ends["", topic, queue_id] - at
            for (reader, name, queue_id), at in self.committed.items()
            if (reader, name) == (group, topic)
        )

    def inflight(self, group: str, topic: str) -> int:
        """Return how many messages a group got and did not commit."""
        return sum(
            max(0, self.pulled.get(key, at) - at)
            for key, at in self.committed.items()
            if key[:2] == (group, topic)
        )


async def read(
    client: Client, truth: Truth, group: str, topic: str, queue_id: int, **fields: Any
) -> list[Any]:
    """Read a queue once, from the committed offset on."""
    at = truth.committed.get((group, topic, queue_id), 0)
    reply = await client.pull(topic, at, group=group, queue_id=queue_id, **fields)
    found = stored(reply)
    truth.got[group, topic] += len(found)
    truth.got_bytes[group, topic] += len(reply.records)
    if found:
        truth.pulled[group, topic, queue_id] = at + len(found)
    return found


async def commit(client: Client, truth: Truth, group: str, topic: str, at: dict[int, int]) -> None:
    """Commit offsets of a group by queue."""
    offsets = [
        groups.QueueOffset(topic=topic, queue_id=queue_id, offset=offset)
        for queue_id, offset in at.items()
    ]
    request = groups.CommitOffsetsRequest(group=group, client_id="a@1", offsets=offsets)
    await client.call(service_methods.COMMIT_OFFSETS, request)
    truth.committed |= {(group, topic, queue_id): offset for queue_id, offset in at.items()}


async def load(measured: Measured, truth: Truth) -> None:
    """Send messages of all kinds, and read them with two groups."""
    client = measured.client
    for topic in ("A", "flights"):
        await client.put_topic(topic, QUEUES)
    for queue_id in range(QUEUES):
        await client.send("A", b"x" * 10 ** (queue_id + 1), queue_id=queue_id)
        truth.ends["", "A", queue_id] += 1
    sender = await client.open_sender()
    records = [sender.record("A", b"batch", queue_id=row % QUEUES) for row in range(90)]
    reply = await sender.send(*records)
    assert not reply.refused
    for row in range(90):
        truth.ends["", "A", row % QUEUES] += 1
    for _ in range(5):
        await client.send("A", b"later", queue_id=1, properties={"DELAY": "1"})
    truth.ends["", "A", 1] += 5
    await client.send("A", b"timed", queue_id=2, properties={"TIMER_DELAY_SEC": "3000"})
    truth.sent["A"] = 4 + 90 + 5  # the timed one waits
    one, *others = await begin(client, b"a", b"b", b"c", b"d", b"e", b"f")
    await end(client, one.end(COMMIT), others[0].end(COMMIT), others[1].end(COMMIT))
    await end(client, others[2].end(ROLLBACK), others[3].end(ROLLBACK))
    truth.sent["flights"] = 3

    async def has_delivered() -> bool:
        reply = await client.pull("A", truth.ends["", "A", 1] - 1, queue_id=1)
        return bool(stored(reply))

    assert await eventually(has_delivered, SOON_S)


async def consume(measured: Measured, truth: Truth) -> None:
    """Read, commit, send back, and give up messages."""
    client = measured.client
    for queue_id in range(QUEUES):
        await read(client, truth, "G1", "A", queue_id, messages_max=20)
    await commit(client, truth, "G1", "A", dict.fromkeys(range(QUEUES), 7))
    for queue_id in range(2):
        await read(client, truth, "G2", "A", queue_id, messages_max=3)
    await commit(client, truth, "G2", "A", {0: 3, 1: 1, 2: 0})
    failed = await read(client, truth, "G1", "A", 3, messages_max=3)
    told = [
        groups.FailedMessage(
            physical_offset=each.physical_offset,
            message_id=each.message_id,
            topic="A",
            queue_id=3,
            queue_offset=each.queue_offset,
            delay_level=level,
        )
        for each, level in zip(failed, (1, 1, DEAD), strict=True)
    ]
    request = groups.SendBackRequest(group="G1", client_id="a@1", messages=told)
    reply = await client.call(service_methods.SEND_BACK, request)
    assert [each.code for each in reply.outcomes] == [0, 0, 0]

    async def has_retried() -> bool:
        return len(stored(await client.pull("%RETRY%G1", 0, queue_id=0))) == 2

    assert await eventually(has_retried, SOON_S)
    truth.sent["%RETRY%G1"], truth.sent["%DLQ%G1"] = 2, 1


def check_traffic(shown: Scraped, truth: Truth) -> None:
    """Compare messages and bytes, in and out."""
    for topic, count in truth.sent.items():
        assert shown.sum("rocketmq_messages_in_total", topic=topic) == count, topic
        sizes = shown.sum("rocketmq_message_size_count", topic=topic)
        assert sizes == count, topic
        length = shown.sum("rocketmq_throughput_in_total", topic=topic)
        assert shown.sum("rocketmq_message_size_sum", topic=topic) == length
    # 10,000 bytes of one body and 1,000 of another; the others are short.
    border = shown.sum("rocketmq_message_size_bucket", topic="A", le="1024.0")
    assert border == truth.sent["A"] - 2
    delayed = shown.sum("rocketmq_messages_in_total", message_type="delay")
    assert delayed == 5 + 1 + 2  # two were sent back
    assert shown.sum("rocketmq_delay_message_latency_seconds_count", topic="A") == 6
    for (group, topic), count in truth.got.items():
        labels = {"consumer_group": group, "topic": topic}
        assert shown.sum("rocketmq_messages_out_total", **labels) == count, labels
        assert shown.sum("rocketmq_throughput_out_total", **labels) == truth.got_bytes[group, topic]
    dead = shown.all("rocketmq_send_to_dlq_messages_total")
    assert [(each.labels["consumer_group"], each.labels["topic"]) for each in dead] == [("G1", "A")]
    assert dead[0].value == 1
    assert shown.sum("rocketmq_half_messages", topic="flights") == 1
    assert shown.sum("rocketmq_commit_messages_total", topic="flights") == 3
    assert shown.sum("rocketmq_finish_message_latency_milliseconds_count", topic="flights") == 3
    assert shown.sum("rocketmq_rollback_messages_total", topic="flights") == 2


def check_lags(shown: Scraped, truth: Truth, *, inflight: bool) -> None:
    """Compare the lags of both groups."""
    for group in ("G1", "G2"):
        labels = {"consumer_group": group, "topic": "A"}
        lag = truth.lag(group, "A")
        assert shown.sum("rocketmq_consumer_lag_messages", **labels) == lag
        got = truth.inflight(group, "A") if inflight else 0
        assert shown.sum("rocketmq_consumer_inflight_messages", **labels) == got
        assert shown.sum("rocketmq_consumer_ready_messages", **labels) == lag - got
        assert shown.sum("rocketmq_consumer_lag_latency_milliseconds", **labels) > 0
        assert (shown.sum("ternmq_consumer_oldest_unacknowledged_seconds", **labels) > 0) is (
            got > 0
        )
        queues = shown.all("ternmq_consumer_queue_lag_seconds", **labels)
        behind = {int(each.labels["queue_id"]) for each in queues if each.value > 0}
        assert behind == {
            queue_id
            for (reader, _, queue_id), at in truth.committed.items()
            if reader == group and at < truth.ends["", "A", queue_id]
        }


def test_metrics_are_what_was_sent_and_received(tmp_path: Path) -> None:
    truth = Truth()

    async def main() -> None:
        async with measured(tmp_path) as first:
            client = first.client
            await load(first, truth)
            await consume(first, truth)
            sessions = [
                await client.open_session(f"{name}@1", membership("G1", "A")) for name in "ab"
            ]
            sessions.append(await client.open_session("p@1"))
            shown = await first.scrape()
            check_traffic(shown, truth)
            check_lags(shown, truth, inflight=True)
            names = {each.name for each in await first.openmetrics()}
            assert names >= {each.name for each in shown.samples if "_gc_" not in each.name}
            status = await client.replication_status()
            assert shown.sum("rocketmq_throughput_in_total") == status.log_end - status.log_start
            assert shown.sum("rocketmq_consumer_connections", consumer_group="G1") == 2
            (one,) = shown.all("rocketmq_consumer_connections", consumer_group="G1")
            assert (one.labels["language"], one.labels["protocol_type"]) == ("python", "grpc")
            assert shown.sum("rocketmq_timing_messages", topic="rmq_sys_wheel_timer") == 1
            assert shown.sum("rocketmq_timer_message_snapshot", timer_bound_s="3600") == 1
            assert shown.sum("ternmq_broker_is_master") == 1
            for stream, _ in sessions:
                await stream.finish()
        async with measured(tmp_path) as again:
            shown = await again.scrape()
            for name in ("in", "out"):
                assert shown.sum(f"rocketmq_messages_{name}_total", is_system="false") == 0
            assert not shown.all("rocketmq_send_to_dlq_messages_total")
            assert not shown.all("rocketmq_commit_messages_total")
            check_lags(shown, truth, inflight=False)

            async def has_recovered() -> bool:
                shown = await again.scrape()
                return shown.sum("rocketmq_half_messages", topic="flights") == 1

            assert await eventually(has_recovered, SOON_S)
            assert shown.sum("rocketmq_consumer_connections") == 0
            await again.client.send("A", b"more", queue_id=0)
            shown = await again.scrape()
            assert shown.sum("rocketmq_messages_in_total", topic="A") == 1

    asyncio.run(main())
