"""Time of a scrape of a broker's metrics, and the pauses of its event loop meanwhile.

    python benchmarks/metrics_scrape.py                 # 1,000 topics with 8 queues, 1,000 groups
    python benchmarks/metrics_scrape.py --topics 100 --scrapes 5

Each group reads one topic and is behind in all its queues. *Still* groups commit nothing between
two scrapes. *Moving* ones commit in all queues, so that all store times are looked up again.
*Sending* is moving with a client that sends 1 KiB messages one after the other. The broker runs
here; a process of its own reads the port over HTTP. The first scrape of a row does not count.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.loop_pause import Ticker
from benchmarks.store_alone import HOST, checked, records_of
from ternmq_broker.broker import Broker
from ternmq_broker.config import BrokerConfig
from ternmq_model.offsets import QueueOffset
from ternmq_model.route import TopicConfig
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import Connection
from ternmq_remoting.system_environment import system_environment
from ternmq_runtime.metrics.config import MetricsConfig
from ternmq_runtime.metrics.port import metrics_port
from ternmq_store.config import FlushMode, StoreConfig

QUEUES: Final = 8
MESSAGES: Final = 20
"""In each queue."""
BODY: Final = bytes(1024)
PORT: Final = 19_557
GET: Final = (
    "import sys, time, urllib.request\n"
    "begun = time.perf_counter()\n"
    "read = urllib.request.urlopen(sys.argv[1], timeout=60).read()\n"
    "print((time.perf_counter() - begun) * 1000, len(read))\n"
)


async def fill(broker: Broker, connection: Connection, topics: int) -> None:
    """Create the topics, and store messages in each of their queues."""
    env = broker.term.environment
    for number in range(topics):
        topic = f"topic-{number}"
        config = TopicConfig(topic, read_queues=QUEUES, write_queues=QUEUES)
        env.tables.topics.put(config, now_ms=env.clock.wall_ms())
        batch = checked(*records_of(0, MESSAGES * QUEUES, topic))
        env.store.append(batch, born_host=HOST, store_host=HOST)
        await asyncio.sleep(0)
    request = messages.SendRequest(topic="topic-0", body=BODY, queue_id=0)
    await connection.call(service_methods.SEND, request, timeout_s=60)  # dispatches all


async def scrape(url: str) -> tuple[float, int]:
    """Return the time of a scrape, ms, and its length."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", GET, url, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    took_ms, length = output.split()
    return float(took_ms), int(length)


async def send(connection: Connection, stopping: asyncio.Event, took_ms: list[float]) -> None:
    """Send messages one after the other."""
    request = messages.SendRequest(topic="topic-0", body=BODY, queue_id=0)
    while not stopping.is_set():
        begun_s = time.perf_counter()
        await connection.call(service_methods.SEND, request, timeout_s=60)
        took_ms.append((time.perf_counter() - begun_s) * 1000)


async def measure(broker: Broker, url: str, options: argparse.Namespace, name: str) -> None:
    """Scrape, and print times and pauses."""
    offsets, now_ms = broker.term.environment.tables.offsets, int(time.time() * 1000)
    took_ms: list[float] = []
    late_ms: list[float] = []
    length = 0
    ticker = Ticker()
    ticker.start()
    for number in range(options.scrapes + 1):
        for topic in range(options.topics if name != "still" or not number else 0):
            for queue_id in range(QUEUES):
                at = QueueOffset(1 + number % (MESSAGES - 2))
                offsets.commit(
                    f"group-{topic}",
                    f"topic-{topic}",
                    queue_id,
                    at,
                    force=True,
                    now_ms=now_ms,
                )
        await asyncio.sleep(0.2)
        ticker.late_ms = array("d")
        took, length = await scrape(url)
        if number:
            took_ms.append(took)
            late_ms.append(max(ticker.late_ms))
    print(
        f"{name:<10} scrape {statistics.median(took_ms):7.1f} ms median, {max(took_ms):7.1f} max;"
        f" longest pause {statistics.median(late_ms):6.1f} ms median, {max(late_ms):6.1f} max;"
        f" {length / 1e6:.1f} MB"
    )


async def main(options: argparse.Namespace) -> None:
    """Run the broker and measure."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        config = BrokerConfig(data=Path(folder), port=0, nameservers=(), flush_mode=FlushMode.ASYNC)
        metrics = MetricsConfig(port=PORT, series_max=100_000)
        async with system_environment() as env:
            broker = Broker(config, StoreConfig(), env)
            async with metrics_port(metrics, broker) as address, broker:
                url = f"http://{address}/metrics"
                connection = await env.network.connect([broker.address], timeout_s=60)
                await fill(broker, connection, options.topics)
                await asyncio.sleep(2)
                await measure(broker, url, options, "still")
                await measure(broker, url, options, "moving")
                stopping = asyncio.Event()
                sends_ms: list[float] = []
                sending = asyncio.create_task(send(connection, stopping, sends_ms))
                await measure(broker, url, options, "sending")
                stopping.set()
                await sending
                await connection.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--scrapes", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    sys.setswitchinterval(0.0005)  # as services do
    gc.set_threshold(50_000, 10, 10)
    print(*machine.describe(given.folder), sep="\n")
    asyncio.run(main(given))
