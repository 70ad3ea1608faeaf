"""Ends of many transactions at once: in their order, and beside what others do."""

import asyncio
from collections.abc import Sequence

import pytest

from ternmq_broker.transactions.transitions import TransitionRecord, Transitions
from ternmq_model.errors import BrokerBusy
from ternmq_model.response_code import ResponseCode
from ternmq_runtime.service import OwnedTasks
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import serving
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

KEYS = [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("staged_for", ["q/1", None])
def test_staged_ends_wait_for_earlier_ones_without_space(
    staged_for: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = BrokerBusy(ResponseCode.SYSTEM_BUSY, "no room")
    commit, left = Transitions.commit, [1]

    async def commit_later(self: Transitions, changes: Sequence[TransitionRecord]) -> None:
        if changes and left:
            left.pop()
            raise busy
        await commit(self, changes)

    async def never(self: Transitions, *arguments: object) -> None:
        raise busy

    monkeypatch.setattr("ternmq_broker.transactions.end_transaction._CHUNK_BYTES", 1)
    monkeypatch.setattr(Transitions, "commit", commit_later)
    monkeypatch.setattr(Transitions, "commit_plain", never)

    async def main() -> None:
        async with serving(topics={"flights": 1}) as (_, client):
            halves = await begin(client, *KEYS, staged_for=staged_for)
            commits = [one.end(COMMIT) for one in halves[:-1]]
            replies = await end(client, *commits, halves[-1].end(ROLLBACK))
            refused = len(commits) if staged_for else 1
            told = [reply.status.code for reply in replies]
            assert told == [ResponseCode.SYSTEM_BUSY] * refused + [0] * (len(KEYS) - refused)
            assert await bodies_of(client) == KEYS[refused:-1]
            assert not any(reply.status.code for reply in await end(client, *commits))
            assert await bodies_of(client) == (KEYS[:-1] if staged_for else [*KEYS[1:-1], KEYS[0]])

    run_in_virtual_time(main())


class Rounds:
    """Counts the rounds of the loop, in each of which others can do something."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            self.count += 1
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("what", "staged_for"),
    [
        ("commit", "q/1"),
        ("commit", None),
        ("roll back", "q/1"),
        ("end again", "q/1"),
        ("find", "q/1"),
        ("list", "q/1"),
        ("roll back a page", "q/1"),
    ],
)
def test_event_loop_runs_while_many_transactions_are_processed(
    what: str, staged_for: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ternmq_broker.transactions.table.ENDED_MAX", 1)
    keys = [b"%d" % number for number in range(1024)]

    async def main() -> None:
        async with serving(topics={"flights": 1}) as (_, client), OwnedTasks() as tasks:
            halves = await begin(client, *keys, immunity_s=60, staged_for=staged_for)
            ends = [one.end(COMMIT if what == "commit" else ROLLBACK) for one in halves]
            if what == "end again":
                await end(client, *ends)
            rounds = Rounds()
            ticking = tasks.spawn(rounds.run(), "rounds")
            if what == "list":
                assert sum(one.count for one in await listed(client)) == len(keys)
            elif what == "roll back a page":
                assert await rolled_back(client, "q", force=True) == (len(keys), 0)
            elif what == "find":
                assert not (await find(client, *halves)).status.code
            else:
                assert not any(reply.status.code for reply in await end(client, *ends))
            ticking.cancel()
            assert rounds.count > 4 * (len(keys) / 64 - 1)

    run_in_virtual_time(main())
