import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

import pytest

from ternmq_client.config import ClientConfig
from ternmq_client.instance import ClientInstance
from ternmq_client.retry_policy import RetryPolicy
from ternmq_model.address import Address
from ternmq_model.errors import ConnectionLost, RefusedError, RequestTimedOut
from ternmq_model.response_code import ResponseCode
from ternmq_producer.transactions.transaction_ends import TransactionEnds
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Call, Connection, ServerStream, stream
from ternmq_remoting.service_methods import END_TRANSACTIONS
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time

EndStream = ServerStream[transactions.EndTransactionsRequest, transactions.EndTransactionsReply]


class OneBroker(ClientInstance):
    """A client that knows one broker."""

    def __init__(self, env: Environment, address: Address) -> None:
        super().__init__(ClientConfig(), env=env)
        self.address = address

    async def broker(self, broker_name: str, broker_id: int = 0) -> Connection:
        """Connect to it."""
        return await self.env.network.connect([self.address])

    def forget(self, broker_name: str, connection: Connection, broker_id: int = 0) -> None:
        """Keep nothing."""


@dataclass
class Broker:
    """Answers ends as a test wants."""

    batches: list[list[int]] = field(default_factory=list[list[int]])
    answer: Callable[[int], int] = lambda _offset: 0
    before: Callable[[], None] = lambda: None

    async def end(self, ends: EndStream, call: Call) -> None:
        while (request := await ends.read()) is not None:
            offsets = [each.transaction_offset for each in request.transactions]
            self.batches.append(offsets)
            self.before()
            reply = transactions.EndTransactionsReply()
            for offset in offsets:
                reply.outcomes.add(queue_offset=offset).status.code = self.answer(offset)
            await ends.write(reply)


@asynccontextmanager
async def ends_of(broker: Broker) -> AsyncGenerator[TransactionEnds]:
    """Give the ends of a client of `broker`."""
    async with MemoryNetwork(Random(1), latency_s=lambda _: 0.001) as network:
        env = Environment(
            clock=VirtualClock(), network=network, random=Random(2), blocking=InlineBlocking()
        )
        handlers = [stream(END_TRANSACTIONS, broker.end)]
        async with (
            network.serve(handlers, Address("localhost", 0)) as server,
            OneBroker(env, server.address) as client,
        ):
            yield TransactionEnds(client, retry=RetryPolicy(delay_s_first=0.1, delay_s_max=1.0))


def request(offset: int) -> transactions.EndTransactionRequest:
    return transactions.EndTransactionRequest(transaction_offset=offset)


def test_ends_sent_during_a_batch_form_the_next_one() -> None:
    async def main() -> None:
        broker = Broker()
        async with ends_of(broker) as ends:
            first = [ends.send("a", request(n), timeout_s=3) for n in range(3)]
            await asyncio.sleep(0.003)
            second = [ends.send("a", request(n), timeout_s=3) for n in range(3, 2000)]
            replies = await asyncio.gather(*first, *second)
            assert [reply.queue_offset for reply in replies] == list(range(2000))
            assert [len(batch) for batch in broker.batches] == [3, 1024, 973]
            await ends.idle()

    run_in_virtual_time(main())


def test_interrupted_ends_are_resent_and_refused_ones_are_not() -> None:
    async def main() -> None:
        broker = Broker()
        left = [ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY]

        def answer(offset: int) -> int:
            if offset == 1:
                return ResponseCode.ILLEGAL_OPERATION
            return left.pop() if offset == 2 and left else 0

        def break_once() -> None:
            broker.before = lambda: None
            raise ConnectionLost("broke")

        broker.answer, broker.before = answer, break_once
        async with ends_of(broker) as ends:
            one, two, three = (ends.send("a", request(n), timeout_s=3) for n in (1, 2, 3))
            assert (await three).queue_offset == 3
            with pytest.raises(RefusedError) as refused:
                await one
            assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
            assert (await two).queue_offset == 2
            assert broker.batches == [[1, 2, 3], [1, 2, 3], [2], [2]]

    run_in_virtual_time(main())


def test_end_that_cannot_be_sent_in_time_reports_it() -> None:
    async def main() -> None:
        broker = Broker(answer=lambda _: ResponseCode.SYSTEM_BUSY)
        async with ends_of(broker) as ends:
            with pytest.raises(RequestTimedOut, match="not confirmed in time") as error:
                await ends.send("a", request(1), timeout_s=2)
            assert error.value.may_have_happened
            ends.send("a", request(2), timeout_s=2)
            await asyncio.sleep(0.01)
            ends.abandon()

    run_in_virtual_time(main())
