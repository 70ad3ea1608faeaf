import asyncio
from random import Random

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_model.errors import TernError
from ternmq_model.response_code import ResponseCode
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore
from tests.support.brokers import CONFIG, Client
from tests.support.files import PowerLossFileSystem
from tests.support.simulated_cluster import CLUSTER_STORE, simulated_cluster
from tests.support.simulated_replicas import caught_up, log_bytes
from tests.support.virtual_time import VirtualClock, run_in_virtual_time


class Sender:
    """Sends without end, and knows what was answered SEND_OK."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.safe_to = 0
        self.count = 0

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            try:
                reply = await self._client.send("T", b"x" * (self.count % 3000))
            except TernError:
                await asyncio.sleep(0.01)
                continue
            self.count += 1
            await asyncio.sleep(0.005)
            if reply.status.code == ResponseCode.SUCCESS:
                # The offset id ends with where the record begins.
                self.safe_to = max(self.safe_to, int(reply.offset_message_id[16:], 16) + 1)


def end_of(files: PowerLossFileSystem) -> int:
    """Return where the log ends that a start after a loss of power finds."""
    store = MessageStore.open(
        CONFIG.data, CLUSTER_STORE, FlushMode.SYNC, files, VirtualClock(), serve_to=None
    )
    end = store.max_physical
    store.close()
    return end


@pytest.mark.parametrize("seed", range(6))
def test_acknowledged_messages_survive_loss_of_power_of_slave(seed: int) -> None:
    random = Random(seed)

    async def main() -> None:
        role = BrokerRole.SYNC_MASTER
        async with simulated_cluster(seed, brokers=("a",), role=role) as cluster:
            master = await cluster.connect("a")
            await master.put_topic("T", 1)
            sender = Sender(master)
            sending = cluster.tasks.spawn(sender.run(), "send")
            for _ in range(4):
                cluster.begin("a-1")
                await asyncio.sleep(random.random())
                if random.random() < 0.5:
                    cluster.network.partition("a", "a-1")
                    await asyncio.sleep(random.random())
                    cluster.network.heal()
                    await asyncio.sleep(random.random())
                disk = cluster.disks["a-1"]
                cluster.lose_power("a-1")
                assert end_of(disk.lose_power(random)) >= sender.safe_to
                await asyncio.sleep(random.random())
            cluster.begin("a-1")
            sending.cancel()
            await caught_up(cluster, "a", timeout_s=60)
            assert sender.safe_to > 0
            assert sender.count > 50
            ours, theirs = (log_bytes(cluster, name, 0, sender.safe_to) for name in ("a", "a-1"))
            assert ours == theirs

    run_in_virtual_time(main())
