"""Staged half messages in a broker: where they stay, what takes them, and what is told of them."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from ternmq_broker.transactions import assembly as module
from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting import service_methods
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, Client, serving, world
from tests.support.transactions import (
    COMMIT,
    ROLLBACK,
    Begun,
    begin,
    bodies_of,
    end,
    find,
    listed,
    open_producer,
)

ONE = {"flights": 1}
OPEN = transactions.TRANSACTION_OPEN
NOT_FOUND = transactions.TRANSACTION_NOT_FOUND
ROLLED_BACK = transactions.TRANSACTION_ROLLED_BACK


async def told_of(client: Client) -> admin.DescribeBrokerReply:
    reply: admin.DescribeBrokerReply = await client.call(
        service_methods.DESCRIBE_BROKER, admin.DescribeBrokerRequest()
    )
    return reply


def test_staged_half_holds_its_file_until_a_full_disk_takes_it() -> None:
    async def main() -> None:
        async with world() as around:
            around.store_config = replace(SMALL_STORE, commit_log_file_bytes=64 << 10)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("flights", 1)
                one, two = await begin(client, b"1", b"2", immunity_s=2_000, staged_for="q/1")
                for number in range(40):
                    await client.send("flights", bytes(8_000), properties={"KEYS": str(number)})
                    await asyncio.sleep(0.1)
                around.files.used = 0.8
                await asyncio.sleep(1_000)
                told = await told_of(client)
                assert told.log_min_offset <= one.offset
                assert (told.transactions.open, told.transactions.staged) == (2, 2)
                assert list((await find(client, one, two)).states) == [OPEN, OPEN]
                (done,) = await end(client, one.end(COMMIT))
                assert not done.status.code
                around.files.used = 0.91
                for number in range(40):
                    with contextlib.suppress(RefusedError):  # until the oldest file is gone
                        await client.send("flights", bytes(8_000), properties={"KEYS": str(number)})
                    await asyncio.sleep(5)
                around.files.used = 0.5
                assert (await told_of(client)).log_min_offset > two.offset
                assert list((await find(client, two)).states) == [NOT_FOUND]
                (refused,) = await end(client, two.end(COMMIT))
                assert "cannot be read" in refused.status.remark
                await asyncio.sleep(1_000)
                told = await told_of(client)
                assert (told.transactions.open, told.transactions.expired) == (0, 1)
                assert told.transactions.unreadable == 1
                (refused,) = await end(client, two.end(COMMIT))
                assert "rolled back already" in refused.status.remark
                await client.connection.close()

    run_in_virtual_time(main())


def test_staged_half_is_not_moved_however_much_lies_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SPAN_MAX", 10)

    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            await begin(client, b"1", immunity_s=500, staged_for="q/1")
            await begin(client, b"2", immunity_s=500)
            bodies = [b"x%d" % number for number in range(30)]
            await begin(client, *bodies, immunity_s=600, staged_for="q/2")
            await asyncio.sleep(300)
            request = admin.DescribeTopicRequest(topic="RMQ_SYS_TRANS_HALF_TOPIC")
            reply = await client.call(service_methods.DESCRIBE_TOPIC, request)
            assert reply.queues[0].max_offset == 33, "the ordinary one was moved, no other"
            assert await bodies_of(client) == []

    run_in_virtual_time(main())


def test_staged_half_without_immunity_expires_when_others_are_checked() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            await open_producer(client)
            (one,) = await begin(client, b"1", staged_for="q/1")
            await asyncio.sleep(5.9)
            assert list((await find(client, one)).states) == [OPEN]
            await asyncio.sleep(2)
            assert list((await find(client, one)).states) == [ROLLED_BACK]
            told = (await told_of(client)).transactions
            assert (told.asked, told.alone, told.expired) == (0, 0, 1)

    run_in_virtual_time(main())


def test_staged_half_expires_at_the_latest_with_log_retention(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with world() as around:
            around.store_config = replace(SMALL_STORE, file_reserved_hours=1)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("flights", 1)
                bodies = [b"%d" % number for number in range(600)]
                begun = await begin(client, *bodies, immunity_s=1 << 31, staged_for="q/1")
                await asyncio.sleep(3_599)
                assert set((await find(client, *begun)).states) == {OPEN}
                await asyncio.sleep(5)
                assert set((await find(client, *begun)).states) == {ROLLED_BACK}
                await client.connection.close()

    run_in_virtual_time(main())
    lines = [line for line in caplog.messages if "staged rows rolled back" in line]
    assert 1 <= len(lines) <= 5
    assert "first_of=q/1" in lines[0]


def test_oversized_or_uneven_query_is_refused() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            (one,) = await begin(client, b"1", immunity_s=60, staged_for="q/1")
            assert len((await find(client, *([one] * 1024))).states) == 1024
            with pytest.raises(RefusedError, match="at most 1024"):
                await find(client, *([one] * 1025))
            stream = client.connection.open(service_methods.FIND_TRANSACTIONS)
            await stream.write(
                transactions.FindTransactionsRequest(producer_group="g", transaction_offsets=[1])
            )
            with pytest.raises(RefusedError, match="1 transaction offsets and 0 message ids"):
                await stream.read()

    run_in_virtual_time(main())


def test_transaction_is_found_by_its_key_without_its_place() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            await open_producer(client)
            one, two, three = await begin(client, b"1", b"2", b"3", immunity_s=60)
            (staged,) = await begin(client, b"4", staged_for="q/1", immunity_s=2_000)
            await end(client, one.end(COMMIT), two.end(ROLLBACK))
            asked = [replace(each, offset=-1) for each in (one, two, three, staged)]
            states = [transactions.TRANSACTION_COMMITTED, ROLLED_BACK, OPEN, OPEN]
            found = await find(client, *asked)
            assert list(found.states) == states
            assert list(found.checks) == [0, 0, 0, 0]
            assert list((await find(client, one, three)).checks) == []
            await asyncio.sleep(100)
            found = await find(client, *asked, Begun("flights", "nobody", -1))
            assert list(found.states) == [*states, NOT_FOUND]
            (*ended, checks, of_staged, missing) = found.checks
            assert (ended, of_staged, missing) == ([0, 0], 0, 0)
            assert checks > 0
            assert list((await find(client, *asked, group="others")).states) == [NOT_FOUND] * 4
            (batch,) = await listed(client, "q/1")
            assert batch.quiet_ms >= 100_000, "a look does not keep operators from a roll-back"

    run_in_virtual_time(main())


def test_unconfirmed_ends_are_waited_for() -> None:
    async def main() -> None:
        async with serving(topics=ONE, flush_mode=FlushMode.SYNC) as (around, client):
            one, two = await begin(client, b"1", b"2", immunity_s=60, staged_for="q/1")
            around.sync_s = 2.0
            began_ms = around.clock.monotonic_ms()
            async with asyncio.TaskGroup() as tasks:
                ending = tasks.create_task(end(client, one.end(COMMIT)))
                await asyncio.sleep(0.1)
                found = await find(client, one, two)
                assert not found.status.code
                assert list(found.states) == [transactions.TRANSACTION_COMMITTED, OPEN]
                assert around.clock.monotonic_ms() - began_ms >= 1_900
                await ending
            around.sync_s = 60.0
            async with asyncio.TaskGroup() as tasks:
                ending = tasks.create_task(end(client, two.end(COMMIT)))
                await asyncio.sleep(0.1)
                found = await find(client, two)
                assert found.status.code == ResponseCode.FLUSH_DISK_TIMEOUT
                assert not found.states
                await ending

    run_in_virtual_time(main())
