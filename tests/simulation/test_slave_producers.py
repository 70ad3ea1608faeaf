"""Producers of a broker name whose master is away while a slave is there."""

import asyncio

import pytest

from ternmq_model.errors import Unreachable
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_producer.transactions import TransactionProducer
from tests.support.paired import NAMESERVER, TOPIC, Pair, paired
from tests.support.virtual_time import run_in_virtual_time


def producer_of(pair: Pair, timeout_s: float = 3.0) -> Producer:
    config = ProducerConfig(send_timeout_s=timeout_s)
    return Producer("p", nameserver=NAMESERVER, config=config, env=pair.environment("p"))


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize("is_known_to_be_away", [True, False])
def test_a_send_without_any_master_fails_undone_and_says_why(
    key: str, is_known_to_be_away: bool
) -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.start_slave()
            async with producer_of(pair) as producer:
                await producer.send(Message(TOPIC, b"0", sharding_key=key))
                if is_known_to_be_away:
                    await pair.stop()
                    await asyncio.sleep(3)
                else:
                    pair.network.partition("p", "master")
                    await asyncio.sleep(20)
                with pytest.raises(Unreachable) as why:
                    await producer.send(Message(TOPIC, b"1", sharding_key=key))
                assert not why.value.may_have_happened
                told = "master" if is_known_to_be_away else "broker a: "
                assert told in str(why.value)
                pair.network.heal()
                if is_known_to_be_away:
                    await pair.start()
                await asyncio.sleep(3)
                await producer.send(Message(TOPIC, b"1", sharding_key=key))
            assert sum(await pair.ends("master")) == 2

    run_in_virtual_time(main())


def test_a_send_that_has_time_waits_for_the_master() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.start_slave()
            async with producer_of(pair, timeout_s=30) as producer:
                await producer.send(Message(TOPIC, b"0", sharding_key="k"))
                await pair.stop()
                sending = asyncio.ensure_future(
                    producer.send(Message(TOPIC, b"1", sharding_key="k"))
                )
                await asyncio.sleep(10)
                assert not sending.done()
                await pair.start()
                assert (await sending).queue_offset == 1

    run_in_virtual_time(main())


def test_the_end_of_a_transaction_waits_for_the_master() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.start_slave()

            async def execute(message: Message, argument: object) -> Resolution:
                await pair.stop()
                asyncio.get_running_loop().call_later(10, returned.set)
                return Resolution.COMMIT

            async def check(message: StoredMessage) -> Resolution:
                raise AssertionError("is not asked: the end is told first")

            returned = asyncio.Event()
            config = ProducerConfig(send_timeout_s=30)
            producer = TransactionProducer(
                "p",
                execute=execute,
                check=check,
                nameserver=NAMESERVER,
                config=config,
                env=pair.environment("p"),
            )
            async with producer:
                sending = asyncio.ensure_future(producer.send(Message(TOPIC, b"0")))
                await returned.wait()
                assert not sending.done()
                assert sum(await pair.ends("slave")) == 0
                await pair.start()
                assert (await sending).resolution is Resolution.COMMIT
                await asyncio.sleep(2)
            assert sum(await pair.ends("master")) == 1

    run_in_virtual_time(main())
