"""What a broker tells operators of open transactions, and what it rolls back for them."""

import asyncio

import pytest

from ternmq_broker.storage.yielding import yield_to_requests
from ternmq_broker.transactions import end_transaction, open_batches
from ternmq_model.errors import InvalidParameter, RefusedError
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import STAGED_QUIET_MS
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_store.queues.read_request import ReadLimits
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import serving, world
from tests.support.transactions import (
    COMMIT,
    ROLLBACK,
    begin,
    bodies_of,
    end,
    find,
    listed,
    rolled_back,
)

QUIET_S = STAGED_QUIET_MS / 1000 + 1

ONE = {"flights": 1}
KEYS = [b"%d" % number for number in range(100)]


def test_list_counts_what_is_open_across_pages_gaps_and_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_batches, "_READ", ReadLimits(7, 1 << 20))
    monkeypatch.setattr(open_batches, "_OFFSETS_MAX", 5)

    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("flights", 1)
                await begin(client, b"ordinary", immunity_s=7200)
                one = await begin(client, *KEYS, immunity_s=600, staged_for="q/1")
                await begin(client, *KEYS[:5], immunity_s=900, staged_for="q/2")
                await end(client, *(each.end(ROLLBACK) for each in one[10:90]))
                await asyncio.sleep(100)
                for batch in await listed(client):
                    left_s = {"": -1, "q/1": 500, "q/2": 800}[batch.staged_for]
                    assert batch.oldest_ms // 1000 == batch.quiet_ms // 1000 == 100
                    assert (
                        -(-batch.left_ms // 1000) == left_s if left_s > 0 else batch.left_ms == -1
                    )
                    assert (batch.producer_group, batch.topic) == ("payers", "flights")
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                counts = [(batch.staged_for, batch.count) for batch in await listed(client)]
                assert counts == [("", 1), ("q/1", 20), ("q/2", 5)]
                await asyncio.sleep(QUIET_S)
                assert sum(batch.count for batch in await listed(client, "q/2")) == 5
                assert await rolled_back(client, "q") == (25, 0)
                (left,) = await listed(client)
                assert (left.staged_for, left.count) == ("", 1)
                await client.connection.close()

    run_in_virtual_time(main())


def test_rows_committed_while_they_are_rolled_back_stay_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            halves = await begin(client, *KEYS, immunity_s=600, staged_for="q/1")
            await asyncio.sleep(QUIET_S)
            left = [1]

            async def commit_some() -> None:
                await yield_to_requests()
                if left:
                    left.pop()
                    await end(client, *(each.end(COMMIT) for each in halves[:10]))

            monkeypatch.setattr(open_batches, "yield_to_requests", commit_some)
            with pytest.raises(RefusedError, match=r"q/1 may be in use: 0 s ago"):
                await rolled_back(client, "q/1")
            assert sum(batch.count for batch in await listed(client)) == 90
            left.append(1)
            halves = halves[10:]
            assert await rolled_back(client, "q/1", force=True) == (80, 10)
            assert await bodies_of(client) == KEYS[:20]

    run_in_virtual_time(main())


@pytest.mark.parametrize("work", ["stage", "find", "commit"])
def test_batch_worked_on_in_the_last_minutes_is_rolled_back_by_force_alone(work: str) -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            halves = await begin(client, *KEYS, immunity_s=600, staged_for="q/1")
            await asyncio.sleep(QUIET_S)
            if work == "stage":
                await begin(client, b"late", immunity_s=600, staged_for="q/1")
            elif work == "find":
                await find(client, halves[0])
            else:
                await end(client, halves[0].end(COMMIT))
            await asyncio.sleep(50)
            with pytest.raises(RefusedError, match=r"q/1 may be in use: 50 s ago") as refused:
                await rolled_back(client, "q")
            assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
            open_count = len(KEYS) + {"stage": 1, "find": 0, "commit": -1}[work]
            assert sum(batch.count for batch in await listed(client)) == open_count
            if work == "find":
                await asyncio.sleep(QUIET_S - 50)
            assert await rolled_back(client, "q", force=work != "find") == (open_count, 0)
            assert await listed(client) == []

    run_in_virtual_time(main())


def test_roll_back_must_name_a_batch() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            await begin(client, b"1", immunity_s=600)
            with pytest.raises(InvalidParameter, match="must be named"):
                await rolled_back(client, "", force=True)

    run_in_virtual_time(main())


class Held:
    """Stands for `yield_to_requests`: who gives way goes on once it is let go."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.came = asyncio.Event()

    async def yield_to_requests(self) -> None:
        """Wait."""
        self.came.set()
        await self.go_on.wait()


@pytest.mark.parametrize("who", ["operator", "producer"])
def test_rows_are_not_told_to_be_open_while_they_are_rolled_back(
    who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            halves = await begin(client, *KEYS, immunity_s=600, staged_for="q/1")
            await asyncio.sleep(QUIET_S)
            held = Held()
            monkeypatch.setattr(end_transaction, "yield_to_requests", held.yield_to_requests)
            ends = [each.end(ROLLBACK) for each in halves]
            async with asyncio.TaskGroup() as group:
                work = rolled_back(client, "q/1") if who == "operator" else end(client, *ends)
                group.create_task(work)
                await held.came.wait()
                asked = group.create_task(find(client, *halves))
                await asyncio.sleep(1)
                assert not asked.done()
                held.go_on.set()
            assert set(asked.result().states) == {transactions.TRANSACTION_ROLLED_BACK}

    run_in_virtual_time(main())


def test_rows_told_to_be_open_while_a_roll_back_reads_are_not_rolled_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            halves = await begin(client, *KEYS, immunity_s=600, staged_for="q/1")
            await asyncio.sleep(QUIET_S)
            held = Held()
            monkeypatch.setattr(open_batches, "yield_to_requests", held.yield_to_requests)
            work = asyncio.ensure_future(rolled_back(client, "q/1"))
            await held.came.wait()
            assert set((await find(client, *halves)).states) == {transactions.TRANSACTION_OPEN}
            held.go_on.set()
            with pytest.raises(RefusedError, match="q/1 may be in use"):
                await work
            assert not any(
                one.status.code for one in await end(client, *(each.end(COMMIT) for each in halves))
            )
            assert await bodies_of(client) == KEYS

    run_in_virtual_time(main())


def test_roll_back_that_waits_for_another_end_looks_again_for_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            halves = await begin(client, *KEYS, immunity_s=600, staged_for="q/1")
            await asyncio.sleep(QUIET_S)
            held = Held()
            monkeypatch.setattr(end_transaction, "yield_to_requests", held.yield_to_requests)
            other = asyncio.ensure_future(end(client, *(each.end(ROLLBACK) for each in halves)))
            await held.came.wait()
            asked = asyncio.ensure_future(find(client, *halves))
            await asyncio.sleep(1)
            work = asyncio.ensure_future(rolled_back(client, "q/1"))
            await asyncio.sleep(1)
            other.cancel()
            held.go_on.set()
            with pytest.raises(RefusedError, match="q/1 may be in use"):
                await work
            assert set((await asked).states) == {transactions.TRANSACTION_OPEN}

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_forced", [False, True])
def test_start_counts_as_work_because_earlier_work_is_not_known(is_forced: bool) -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("flights", 1)
                halves = await begin(client, *KEYS, immunity_s=600, staged_for="q/1")
                await asyncio.sleep(100)
                await find(client, *halves)
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                (batch,) = await listed(client)
                assert batch.quiet_ms < 1000 < 100_000 <= batch.oldest_ms
                if not is_forced:
                    with pytest.raises(RefusedError, match=r"q/1 may be in use: .* broker started"):
                        await rolled_back(client, "q")
                    await asyncio.sleep(QUIET_S)
                assert await rolled_back(client, "q", force=is_forced) == (len(KEYS), 0)
                await client.connection.close()

    run_in_virtual_time(main())


def test_damaged_row_is_left_to_its_deadline_and_others_are_rolled_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(open_batches, "_READ", ReadLimits(7, 1 << 20))

    async def main() -> None:
        async with serving(topics=ONE) as (around, client):
            halves = await begin(client, *KEYS, immunity_s=600, staged_for="q/1")
            files = around.files.nodes.items()
            log = next(node for path, node in files if "commitlog" in str(path))
            log.data[halves[50].offset + 88] ^= 1
            await asyncio.sleep(QUIET_S)
            (batch,) = await listed(client)
            assert batch.count == 99
            assert await rolled_back(client, "q/1") == (99, 0)
            assert await listed(client) == []

    run_in_virtual_time(main())
    told = [record for record in caplog.records if record.name == open_batches.logger.name]
    (line,) = [record.getMessage() for record in told if record.levelname == "WARNING"]
    assert "staged_for=q/1 count=99 already_ended=0" in line
