"""Who is far behind reads from a slave, as the group's settings say, and comes back."""

import asyncio

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push import PushConsumer
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import contracts
from tests.support.paired import NAMESERVER, TOPIC, Pair, paired
from tests.support.virtual_time import run_in_virtual_time, until

FIRST = PushConsumerConfig(
    consume_from=ConsumeFrom.FIRST_OFFSET, workers=1, pull_threshold_messages=20
)
NOTHING_IS_IN_MEMORY = 1


def consumer_of(pair: Pair) -> PushConsumer:
    return PushConsumer(
        "g",
        TOPIC,
        nameserver=NAMESERVER,
        config=FIRST,
        env=pair.environment("c1"),
        listener=pair.listen,
    )


@pytest.mark.parametrize("broker_id_when_slow", [1, 7])
def test_a_backlog_that_is_not_in_memory_is_read_from_a_slave(broker_id_when_slow: int) -> None:
    async def main() -> None:
        async with paired(memory_bytes=NOTHING_IS_IN_MEMORY) as pair:
            client = await pair.client()
            settings = admin.GroupSettings(
                group="g",
                consume_enabled=True,
                retry_queues=1,
                retries_max=16,
                broker_id_when_slow=broker_id_when_slow,
            )
            await client.call(contracts.PUT_GROUP, admin.PutGroupRequest(settings=settings))
            await client.connection.close()
            await pair.send(200)
            await pair.start_slave()
            async with consumer_of(pair):
                await until(pair.has_all)
                assert len(pair.heard) == 200
                assert await pair.read_by("slave") > 100
                await asyncio.sleep(6)
            assert await pair.committed("master") == [100, 100]

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_enabled", [True, False])
def test_readers_stay_at_the_master_where_no_slave_follows_or_none_may_be_read(
    is_enabled: bool,
) -> None:
    async def main() -> None:
        async with paired(memory_bytes=NOTHING_IS_IN_MEMORY, slave_read_enabled=is_enabled) as pair:
            await pair.send(100)
            await pair.start_slave()
            if is_enabled:
                await pair.stop("slave")
            async with consumer_of(pair):
                await until(pair.has_all)
            assert await pair.read_by("master") == 100

    run_in_virtual_time(main())


def test_a_slave_that_goes_gives_its_readers_back() -> None:
    async def main() -> None:
        async with paired(memory_bytes=NOTHING_IS_IN_MEMORY) as pair:
            await pair.send(200)
            await pair.start_slave()
            async with consumer_of(pair):
                await until(lambda: len(pair.heard) > 50)
                await pair.stop("slave")
                await until(pair.has_all)
                assert len(pair.heard) == 200

    run_in_virtual_time(main())


def test_a_slave_that_may_not_be_read_is_not_read_though_the_master_is_gone() -> None:
    async def main() -> None:
        async with paired(slave_read_enabled=False) as pair:
            await pair.send(100)
            await pair.start_slave()
            async with consumer_of(pair):
                await until(lambda: len(pair.heard) > 20)
                await pair.stop()
                await asyncio.sleep(60)
                assert len(pair.heard) < 100
                await pair.start()
                await until(pair.has_all)
                assert len(pair.heard) == 100

    run_in_virtual_time(main())
