"""Deliveries that a crash does not repeat, since the log has them."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from ternmq_store.config import FlushMode
from tests.support.simulated_cluster import simulated_cluster
from tests.support.virtual_time import run_in_virtual_time

WAITS: dict[str, dict[str, Any]] = {
    "level": {"delay_level": 1},
    "time": {"deliver_after_ms": 1_000},
}


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize(("mode", "pause_s"), [(FlushMode.ASYNC, 5), (FlushMode.SYNC, 0.6)])
@pytest.mark.parametrize("waits", WAITS)
def test_message_is_delivered_once_however_often_its_broker_dies(
    waits: str, mode: FlushMode, pause_s: float, loses_power: bool
) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",), mode=mode) as cluster:
            await cluster.put_topic("T", 1)
            async with cluster.producer() as producer:
                for _ in range(10):
                    await cluster.send(producer, "T", **WAITS[waits])
            await asyncio.sleep(0.8 if loses_power else 0)
            for _ in range(6):
                await asyncio.sleep(pause_s)
                (cluster.lose_power if loses_power else cluster.kill)("a")
                await cluster.start("a")
            await asyncio.sleep(20)
            found = Counter(message.body for _, message in await cluster.records("T"))
            assert set(found.values()) == {1}
            if mode is FlushMode.SYNC or not loses_power:
                assert len(found) == 10
            assert all("TERNMQ_SOURCE" not in m.properties for _, m in await cluster.records("T"))

    run_in_virtual_time(main())
