"""Ends of many transactions at once, while the log takes nothing for a moment."""

from collections.abc import Sequence

import pytest

from ternmq_broker.transactions.steps import Change, Steps
from ternmq_model.errors import BrokerBusy
from ternmq_model.response_code import ResponseCode
from tests.support.brokers import serving
from tests.support.transactions import COMMIT, ROLLBACK, begin, bodies_of, end
from tests.support.virtual_time import run_in_virtual_time

KEYS = [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("staged_for", ["q/1", None])
def test_staged_ones_wait_for_those_before_them_that_find_no_room(
    staged_for: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = BrokerBusy(ResponseCode.SYSTEM_BUSY, "no room")
    commit, left = Steps.commit, [1]

    async def commit_later(self: Steps, changes: Sequence[Change]) -> None:
        if changes and left:
            left.pop()
            raise busy
        await commit(self, changes)

    async def never(self: Steps, *arguments: object) -> None:
        raise busy

    monkeypatch.setattr("ternmq_broker.transactions.ending._CHUNK_BYTES", 1)
    monkeypatch.setattr(Steps, "commit", commit_later)
    monkeypatch.setattr(Steps, "commit_plain", never)

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
