"""Slaves whose own log cannot go on as it is, as whole brokers."""

import asyncio
from dataclasses import replace

from ternmq_broker.config import BrokerRole
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import CLUSTER_STORE, SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import caught_up, log_bytes, status_of
from tests.support.slow_jobs import slow_jobs

HOUR_S = 3600
SYNC = BrokerRole.SYNC_MASTER


async def have_the_same(cluster: SimulatedCluster, start: int = 0, name: str = "a-1") -> None:
    master, slave = await status_of(cluster, "a"), await status_of(cluster, name)
    assert master.log_end == slave.log_end > master.log_start
    assert slave.log_start == start
    ours, theirs = (log_bytes(cluster, each, start, slave.log_end) for each in ("a", name))
    assert ours == theirs


def log_file_bytes(cluster: SimulatedCluster, name: str) -> list[int]:
    """Return the lengths of a member's log files."""
    nodes = sorted(cluster.disks[name].nodes.items())
    return [len(node.data) for path, node in nodes if path.parent.name == "commitlog"]


def test_empty_slave_takes_file_length_of_its_master() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",), role=SYNC) as cluster:
            master = await cluster.connect("a")
            await master.put_topic("T", 1)
            for number in range(50):
                await master.send("T", bytes(100 * number))
            cluster.store_config = replace(CLUSTER_STORE, commit_log_file_bytes=1 << 20)
            await cluster.start("a-1")
            await caught_up(cluster, "a", timeout_s=10)
            await master.send("T", b"more")
            await have_the_same(cluster)
            assert log_file_bytes(cluster, "a-1")[0] == log_file_bytes(cluster, "a")[0]

    run_in_virtual_time(main())


def test_several_slaves_that_come_and_go_have_one_log() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "a-1", "a-2"), role=SYNC) as cluster:
            master = await cluster.connect("a", "client")
            await caught_up(cluster, "a", timeout_s=10)
            await master.put_topic("T", 1)
            await master.send("T", b"early")
            await cluster.start("a-3")
            await caught_up(cluster, "a", timeout_s=10)
            for number in range(100):
                reply = await master.send("T", bytes(20 * number))
                assert reply.status.code == 0
            await cluster.stop("a-3")
            cluster.network.cut("a", "a-2")
            await master.send("T", b"late")
            await caught_up(cluster, "a", timeout_s=10)
            await master.send("T", b"last")
            await asyncio.sleep(1)
            for name in ("a-1", "a-2"):
                await have_the_same(cluster, name=name)
            await cluster.start("a-3")
            await caught_up(cluster, "a", timeout_s=10)
            await have_the_same(cluster, name="a-3")
            await cluster.stop("a-3")
            assert len((await status_of(cluster, "a")).followers) == 2

    run_in_virtual_time(main())


def test_slave_begins_where_log_of_master_begins_now() -> None:
    async def main() -> None:
        store = replace(CLUSTER_STORE, commit_log_file_bytes=64 << 10, file_reserved_hours=1)
        async with simulated_cluster(brokers=("a",), store=store, role=SYNC) as cluster:
            master = await cluster.connect("a")
            await master.put_topic("T", 1)
            await cluster.start("a-1")
            await caught_up(cluster, "a", timeout_s=10)
            await master.send("T", b"old")
            await cluster.stop("a-1")
            for _ in range(40):
                await master.send("T", bytes(8000))
            with slow_jobs():
                await asyncio.sleep(1.1 * HOUR_S)
            for _ in range(10):
                await master.send("T", bytes(8000))
            await asyncio.sleep(2)
            reply = await master.call(service_methods.CLEAN_STORE, admin.CleanStoreRequest())
            assert reply.files_deleted >= 2
            start = (await status_of(cluster, "a")).log_start
            assert start > 0
            await cluster.start("a-1")
            await caught_up(cluster, "a", timeout_s=10)
            await master.send("T", b"more")
            await have_the_same(cluster, start)

    run_in_virtual_time(main())


def test_slave_mends_its_own_units() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",), role=SYNC) as cluster:
            master = await cluster.connect("a")
            await master.put_topic("T", 1)
            await cluster.start("a-1")
            for _ in range(20):
                await master.send("T")
            await caught_up(cluster, "a", timeout_s=10)
            await asyncio.sleep(1)
            nodes = cluster.disks["a-1"].nodes
            units = next(node.data for path, node in nodes.items() if "T" in path.parts)
            before = units.tobytes()
            units[7 * 20 + 19] ^= 1
            await asyncio.sleep(70)
            assert units.tobytes() == before
            request = admin.DescribeStoreRequest()
            told = await cluster.ask("a-1", service_methods.DESCRIBE_STORE, request)
            assert told.verification.units_mended == 1

    run_in_virtual_time(main())
