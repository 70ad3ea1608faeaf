import asyncio
from typing import Any

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_broker.registration import Registrant, Registrar
from ternmq_broker.replication.role.membership import EndReason
from ternmq_broker.transactions.assembly import Transactions
from ternmq_model.address import Address
from ternmq_model.errors import BrokerDraining, CannotListen, ClosedError, StoreError, TernError
from ternmq_model.response_code import ResponseCode as Code
from ternmq_runtime.service import Job, OwnedTasks
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_network import MemoryListener
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.simulation.broker.test_registration import brokers, nameserver_of
from tests.support.brokers import Client, World, bodies, offsets_of, world
from tests.support.simulated_replicas import master_and_slave, replicated


def test_ended_term_is_followed_by_another_on_the_same_port() -> None:
    async def main() -> None:
        async with world() as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            await client.send("A", b"1")
            address, first = broker.address, broker.term
            first.end(EndReason.CUT)
            await asyncio.sleep(0.5)
            assert broker.term is not first
            assert broker.address == address
            assert bodies(await client.pull("A")) == [b"1"]
            assert (await client.send("A", b"2")).queue_offset == 1
            with pytest.raises(ClosedError):
                _ = first.address

    run_in_virtual_time(main())


def test_batch_under_way_is_answered_before_a_term_ends() -> None:
    async def main() -> None:
        async with world() as around, OwnedTasks() as tasks, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            sender = await client.open_sender()
            around.sync_s = 1.0
            sending = tasks.spawn(sender.send(sender.record("A")), "send")
            await asyncio.sleep(0.1)
            broker.term.end(EndReason.FENCED)
            reply = await sending
            around.sync_s = 0.0
            assert reply.status.code == Code.SUCCESS
            assert offsets_of(reply.queue_offsets) == [0]

    run_in_virtual_time(main())


def test_broker_that_leaves_takes_no_messages_while_a_long_step_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def step(_self: Transactions) -> bool:
        begun.set()
        await asyncio.sleep(2)
        return False

    async def main() -> None:
        async with world() as around, OwnedTasks() as tasks:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await begun.wait()
                leaving = tasks.spawn(leave(client), "send while it leaves")
            await leaving

    async def leave(client: Client) -> None:
        await asyncio.sleep(0.5)
        with pytest.raises(BrokerDraining, match="the broker is closing"):
            await client.send("A")

    begun = asyncio.Event()
    monkeypatch.setattr(Transactions, "step", step)
    run_in_virtual_time(main())


def test_first_reason_to_end_a_term_counts() -> None:
    async def main() -> None:
        async with world() as around, around.broker() as broker:
            term = broker.term
            term.end(EndReason.FENCED)
            term.end(EndReason.PROMOTED)
            assert await term.over() is EndReason.FENCED

    run_in_virtual_time(main())


def test_block_left_between_two_terms_ends_the_second_cleanly() -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await client.send("A", b"1")
                around.sync_s = 0.3
                broker.term.end(EndReason.CUT)
                await asyncio.sleep(1.0)
                with pytest.raises(TernError):
                    await client.send("A", b"2")
            assert not around.files.locks
            with pytest.raises(ClosedError):
                _ = broker.address
            around.sync_s = 0.0
            async with around.broker() as broker:
                assert bodies(await (await around.connect(broker)).pull("A")) == [b"1"]

    run_in_virtual_time(main())


@pytest.mark.parametrize("terms", [1, 2])
def test_failure_inside_a_term_cancels_the_block_and_is_raised(
    terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        trouble = asyncio.Event()

        async def fail() -> bool:
            if trouble.is_set():
                raise RuntimeError("a bug")
            return False

        async def stay() -> None:
            async with around.broker() as broker:
                for _ in range(terms - 1):
                    broker.term.end(EndReason.CUT)
                    await asyncio.sleep(0.5)
                trouble.set()
                await asyncio.sleep(3600)

        def jobs(_self: Registrar, _registrant: Registrant) -> tuple[Job, ...]:
            return (Job(name="fails", interval_s=1, step=fail),)

        monkeypatch.setattr(Registrar, "jobs", jobs)
        async with world() as around:
            with pytest.raises(ExceptionGroup) as caught:
                await stay()
            assert [str(each) for each in caught.value.exceptions] == ["a bug"]
            assert asyncio.get_running_loop().time() < 60
            assert not around.files.locks

    run_in_virtual_time(main())


class Goodbye:
    """The registration that a term left, as far as its goodbye."""

    def __init__(self, error: Exception | None = None) -> None:
        self.said = 0
        self._error = error

    async def leave(self) -> None:
        self.said += 1
        if self._error is not None:
            raise self._error


def test_goodbye_that_fails_does_not_keep_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[MemoryListener] = []

    async def close(listener: MemoryListener) -> None:
        closed.append(listener)

    async def main() -> None:
        async def stay() -> None:
            async with around.broker() as broker:
                term: Any = broker.term
                term.registered = Goodbye(RuntimeError("a bug"))

        async with world() as around:
            with pytest.raises(ExceptionGroup):
                await stay()
            assert len(closed) == 1

    monkeypatch.setattr(MemoryListener, "close", close)

    run_in_virtual_time(main())


def test_slave_withdraws_what_is_still_registered_before_it_hands_on_its_own() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            goodbye = Goodbye()
            term: Any = cluster.broker("a-1").term
            term.registered = goodbye
            term.end(EndReason.CUT)
            await replicated(cluster)
            assert goodbye.said == 1

    run_in_virtual_time(main())


def test_term_that_cannot_begin_fails_the_block() -> None:
    async def main() -> None:
        async def stay() -> None:
            async with around.broker(port=5000) as broker:
                around.sync_s = 0.1
                broker.term.end(EndReason.CUT)
                async with OwnedTasks() as tasks:
                    tasks.spawn(rival(), "rival")
                    await asyncio.sleep(3600)

        async def rival() -> None:
            """Take the port as soon as it is free."""
            while True:
                try:
                    async with around.network.serve([], broker_address):
                        await asyncio.sleep(3600)
                except CannotListen:
                    await asyncio.sleep(0.001)

        async with world() as around:
            broker_address = Address("127.0.0.1", 5000)
            with pytest.raises(ExceptionGroup) as caught:
                await stay()
            assert [type(each) for each in caught.value.exceptions] == [CannotListen]
            assert not around.files.locks

    run_in_virtual_time(main())


def test_broker_can_be_entered_again() -> None:
    async def main() -> None:
        async with world() as around:
            broker = around.broker()
            for expected in ([], [b"1"]):
                async with broker:
                    client = await around.connect(broker)
                    await client.put_topic("A", 1)
                    assert bodies(await client.pull("A")) == expected
                    await client.send("A", b"1")

    run_in_virtual_time(main())


def test_slave_whose_next_term_cannot_begin_is_not_registered_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        slave: dict[str, Any] = {"role": BrokerRole.SLAVE, "broker_id": 1}
        async with world(nameservers=("ns:9876",), **slave) as around, nameserver_of(around):
            with pytest.raises(ExceptionGroup):
                await live(around)
            assert await brokers(around) == []

    async def live(around: World) -> None:
        async with around.broker() as broker:
            assert await brokers(around) == ["broker-a"]
            monkeypatch.setattr(MessageStore, "open", fail)
            broker.term.end(EndReason.FOLLOWS)
            await asyncio.sleep(60)

    def fail(*_arguments: object, **_options: object) -> None:
        raise StoreError("no more")

    run_in_virtual_time(main())
