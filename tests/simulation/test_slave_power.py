import asyncio
from random import Random

import pytest

from ternmq_broker import Broker
from ternmq_model.errors import TernError
from ternmq_model.response_code import ResponseCode
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore
from tests.support.brokers import CONFIG, SMALL_STORE, Client
from tests.support.duo import Duo, duo, follows, until
from tests.support.files import PowerLossFileSystem
from tests.support.replicas import log_of
from tests.support.virtual_time import VirtualClock, run_in_virtual_time


async def has_caught_up(both: Duo) -> bool:
    slave = await both.client(1)
    try:
        return await follows(slave)
    finally:
        await slave.connection.close()


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


async def serve(broker: Broker) -> None:
    async with broker:
        await asyncio.get_running_loop().create_future()


def end_of(files: PowerLossFileSystem) -> int:
    """Return where the log ends that a start after a loss of power finds."""
    store = MessageStore.open(
        CONFIG.data, SMALL_STORE, FlushMode.SYNC, files, VirtualClock(), serve_to=None
    )
    end = store.max_physical
    store.close()
    return end


@pytest.mark.parametrize("seed", range(6))
def test_what_was_answered_as_safe_is_in_a_slave_that_lost_its_power(seed: int) -> None:
    random = Random(seed)

    async def main() -> None:
        async with duo() as both, both.member(0), OwnedTasks() as tasks:
            both.files[1] = PowerLossFileSystem()
            master = await both.client(0)
            await master.put_topic("T", 1)
            sender = Sender(await both.client(0))
            sending = tasks.spawn(sender.run(), "send")
            for _ in range(4):
                life = tasks.spawn(serve(both.member(1)), "slave")
                await asyncio.sleep(random.random())
                if random.random() < 0.5:
                    both.network.partition("a0", "a1")
                    await asyncio.sleep(random.random())
                    both.network.heal()
                    await asyncio.sleep(random.random())
                safe_to = sender.safe_to
                disk = both.files[1]
                assert isinstance(disk, PowerLossFileSystem)
                after = disk.lose_power(random)
                both.network.kill("a1")
                life.cancel()
                await asyncio.wait({life})
                assert end_of(disk.lose_power(random)) >= safe_to
                both.files[1] = after
                await asyncio.sleep(random.random())
            tasks.spawn(serve(both.member(1)), "slave")
            sending.cancel()
            await until(lambda: has_caught_up(both), 60)
            assert sender.safe_to > 0
            assert sender.count > 50
            ours, theirs = (log_of(files, sender.safe_to, CONFIG.data) for files in both.files[:2])
            assert ours == theirs

    run_in_virtual_time(main())
