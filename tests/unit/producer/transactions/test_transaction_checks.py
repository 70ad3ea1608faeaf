import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

import pytest

from ternmq_client.instance import ClientInstance
from ternmq_model.errors import IllegalMessage
from ternmq_model.message import NO_PROPERTIES, Message
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution
from ternmq_producer.transactions.transaction_checks import TransactionChecks, decide
from ternmq_producer.transactions.transaction_ends import TransactionEnds
from ternmq_producer.transactions.transaction_producer import half_message
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.environment import Environment
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time
from tests.support.records import record


class AnEnds(TransactionEnds):
    """Recorder of the requests that end transactions."""

    def __init__(self) -> None:
        self.told: list[tuple[str, transactions.EndTransactionRequest]] = []

    def send(
        self,
        broker_name: str,
        request: transactions.EndTransactionRequest,
        *,
        timeout_s: float,
        carrier: Mapping[str, str] = NO_PROPERTIES,
    ) -> "asyncio.Future[transactions.EndTransactionReply]":
        """Record the request."""
        self.told.append((broker_name, request))
        return asyncio.get_running_loop().create_future()


def asked(transaction: int, *, group: str = "payers", body: bytes = b"body") -> groups.SessionReply:
    """Return a broker's question."""
    return groups.SessionReply(
        check_transaction=groups.CheckTransaction(
            producer_group=group,
            transaction_offset=transaction,
            message_id=f"m{transaction}",
            record=record("flights", 3, body, {"UNIQ_KEY": f"m{transaction}"}),
            check=1,
        )
    )


class Awaited:
    async def __call__(self, argument: Resolution) -> Resolution:
        """Return it."""
        return argument


async def awaited(argument: Resolution) -> Resolution:
    return argument


def plain(argument: Resolution) -> Resolution:
    return argument


def leaves_it_to_another(argument: Resolution) -> Awaitable[Resolution]:
    return awaited(argument)


def says_nothing(argument: Resolution) -> None:
    return None


def says_yes(argument: Resolution) -> bool:
    return True


def raises(argument: Resolution) -> Resolution:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("function", "resolution"),
    [
        (awaited, Resolution.COMMIT),
        (Awaited(), Resolution.COMMIT),
        (plain, Resolution.COMMIT),
        (leaves_it_to_another, Resolution.COMMIT),
        (raises, Resolution.UNKNOWN),
        (says_nothing, Resolution.UNKNOWN),
        (says_yes, Resolution.UNKNOWN),
    ],
)
def test_any_kind_of_function_can_check_a_transaction(
    function: Callable[..., Any], resolution: Resolution
) -> None:
    async def main() -> None:
        assert await decide(InlineBlocking(), function, Resolution.COMMIT) is resolution

    run_in_virtual_time(main())


def test_checks_are_answered_a_few_at_a_time_and_each_once() -> None:
    async def main() -> None:
        running, most = 0, 0

        async def check(message: StoredMessage) -> Resolution:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1
            return Resolution.ROLLBACK

        async with MemoryNetwork(Random(1)) as network:
            env = Environment(
                clock=VirtualClock(), network=network, random=Random(2), blocking=InlineBlocking()
            )
            async with ClientInstance(env=env) as client:
                ends = AnEnds()
                checks = TransactionChecks(
                    "payers",
                    check,
                    client,
                    ends,
                    is_running=lambda message_id: message_id == "m3",
                    workers=2,
                    timeout_s=3,
                )
                for transaction in (1, 2, 3, 4, 1):
                    checks.asked(asked(transaction), "a")
                checks.asked(asked(9, group="others"), "a")
                checks.asked(asked(1), "b")
                await asyncio.sleep(10)
                assert most == 2
                told = [
                    (name, each.transaction_offset, each.resolution) for name, each in ends.told
                ]
                assert sorted(told) == [
                    ("a", 1, transactions.ROLLBACK),
                    ("a", 2, transactions.ROLLBACK),
                    ("a", 3, transactions.UNKNOWN),
                    ("a", 4, transactions.ROLLBACK),
                    ("b", 1, transactions.ROLLBACK),
                ]
                assert all(each.topic == "flights" and each.from_check for _, each in ends.told)
                checks.asked(asked(1), "a")
                await asyncio.sleep(2)
                assert len(ends.told) == 6

    run_in_virtual_time(main())


def test_half_message_names_its_owner_and_is_never_delayed() -> None:
    half = half_message(Message("flights", b"", tags="t"), "payers", check_after_s=9)
    properties = half.encoded_properties().decode()
    assert "TRAN_MSG\x01true\x02PGROUP\x01payers\x02" in properties
    assert "CHECK_IMMUNITY_TIME_IN_SECONDS\x019\x02" in properties
    for message in (
        Message("flights", b"", delay_level=3),
        Message("flights", b"", deliver_at_ms=1),
        Message("flights", b"", deliver_after_ms=1),
    ):
        with pytest.raises(IllegalMessage, match="cannot be delayed"):
            half_message(message, "payers", check_after_s=None)
    with pytest.raises(IllegalMessage, match="0 or more"):
        half_message(Message("flights", b""), "payers", check_after_s=-1)
