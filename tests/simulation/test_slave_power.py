import asyncio
from random import Random

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_model.errors import TernError
from ternmq_model.response_code import ResponseCode
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import PowerLossFileSystem
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time, until
from tests.support.brokers import CONFIG, Client
from tests.support.simulated_cluster import CLUSTER_STORE, simulated_cluster
from tests.support.simulated_replicas import caught_up, log_bytes


class Senders:
    """Three concurrent senders, which know how far the log is acknowledged with SEND_OK.

    One alone waits for the slave's sync each time, so that nothing is written during a sync.
    """

    def __init__(self, client: Client, random: Random) -> None:
        self._client = client
        self._random = random
        self.safe_to = 0
        self.count = 0

    async def run(self) -> None:
        """Send until cancelled."""
        await asyncio.gather(*(self._send() for _ in range(3)))

    async def acknowledged(self) -> None:
        """Wait for one more SEND_OK."""
        before = self.safe_to
        await until(lambda: self.safe_to > before)

    async def _send(self) -> None:
        while True:
            try:
                reply = await self._client.send("T", b"x" * (self.count % 3000))
            except TernError:
                await asyncio.sleep(0.01)
                continue
            self.count += 1
            if reply.status.code != ResponseCode.SUCCESS:
                await asyncio.sleep(0.1)  # the slave is away
                continue
            # The offset id ends with where the record begins.
            self.safe_to = max(self.safe_to, int(reply.offset_message_id[16:], 16) + 1)
            await asyncio.sleep(self._random.random() * 0.02)


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
            cluster.disk_s["a-1"] = 0.02  # longer than an answer's way to the sender
            master = await cluster.connect("a")
            await master.put_topic("T", 1)
            senders = Senders(master, cluster.random)
            sending = cluster.tasks.spawn(senders.run(), "send")
            for _ in range(4):
                cluster.begin("a-1")
                await asyncio.sleep(random.random())
                if random.random() < 0.5:
                    cluster.network.partition("a", "a-1")
                    await asyncio.sleep(random.random())
                    cluster.network.heal()
                    await asyncio.sleep(random.random())
                if random.random() < 0.8:
                    await senders.acknowledged()
                    await asyncio.sleep(random.random() * 0.3)
                disk = cluster.disks["a-1"]
                cluster.lose_power("a-1")
                end = min(end_of(disk.lose_power(random)) for _ in range(3))
                await asyncio.sleep(random.random())
                assert end >= senders.safe_to  # with the answers that were on their way
            cluster.begin("a-1")
            sending.cancel()
            await caught_up(cluster, "a", timeout_s=60)
            assert senders.safe_to > 0
            assert senders.count > 50
            ours, theirs = (log_bytes(cluster, name, 0, senders.safe_to) for name in ("a", "a-1"))
            assert ours == theirs

    run_in_virtual_time(main())
