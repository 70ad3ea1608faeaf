"""A master that was replaced and cut its log is promoted before it heard the other one's tables."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_broker.replication.tables.synchronizer import TableSynchronizer
from ternmq_store.disk.state_file import replace_file
from ternmq_testing.time.virtual_time import EPOCH_MS, run_in_virtual_time
from tests.support.simulated_cluster import simulated_cluster
from tests.support.simulated_replicas import caught_up, promote

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    "waits", [{"delay_level": 4}, {"deliver_at_ms": EPOCH_MS + 30_000}], ids=["level", "time"]
)
def test_delivery_cut_from_the_log_is_repeated_by_promoted_member(
    waits: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(_: TableSynchronizer) -> bool:
        return False

    async def main() -> None:
        async with simulated_cluster(brokers=("a",), role=BrokerRole.ASYNC_MASTER) as cluster:
            cluster.clock_offsets_ms["a-1"] = -HOUR_MS  # it delivers later than the other one
            await cluster.start("a-1")
            await cluster.put_topic("T", 1)
            async with cluster.producer() as producer:
                await cluster.send(producer, "T", "waits", **waits)
            await caught_up(cluster, "a")
            cluster.network.partition("a", "a-1")
            await asyncio.sleep(35)
            assert len(await cluster.records("T")) == 1, "delivered, and progress kept"
            cluster.kill("a")
            monkeypatch.setattr(TableSynchronizer, "step", deaf)
            await promote(cluster, "a-1")
            cluster.network.heal()
            await cluster.start("a")
            await caught_up(cluster, "a")
            assert not await cluster.records("T"), "cut, and not due at the new master"
            cluster.kill("a-1")
            await promote(cluster, "a")
            await asyncio.sleep(5)
            await cluster.scan("T")
            cluster.history.check(seed=1)

    run_in_virtual_time(main())


def test_delivery_lost_with_slaves_power_is_repeated() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "a-1"), role=BrokerRole.ASYNC_MASTER) as cluster:
            await cluster.put_topic("T", 1)
            async with cluster.producer() as producer:
                await cluster.send(producer, "T", "waits", delay_level=4)
            await caught_up(cluster, "a")
            await asyncio.sleep(1)
            await cluster.stop("a-1")
            cluster.destroy_disk("a")
            disk, config = cluster.disks["a-1"], Path("/broker/config")
            kept = json.loads(disk.nodes[config / "replication.json"].data.tobytes())
            kept["confirmed"] += 1000
            replace_file(disk, config / "replication.json", json.dumps(kept).encode())
            replace_file(disk, config / "delayOffset.json", b'{"offsetTable":{"4":1}}')
            await cluster.start("a-1")
            await promote(cluster, "a-1", is_forced=True)
            await asyncio.sleep(35)
            await cluster.scan("T")
            cluster.history.check(seed=1)

    run_in_virtual_time(main())
