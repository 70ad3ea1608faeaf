"""What a session's stream is to tell."""

import asyncio

from ternmq_broker.sessions import COMMANDS_MAX, Outbox
from ternmq_protos.v1 import groups_pb2 as groups
from tests.support.virtual_time import run_in_virtual_time


def command(number: int) -> groups.SessionReply:
    return groups.SessionReply(report_state=groups.ReportState(request_id=number))


def test_commands_keep_their_order_behind_changes_of_members_which_count_once() -> None:
    async def main() -> None:
        outbox = Outbox()
        outbox.command(command(1))
        outbox.tell("g")
        outbox.command(command(2))
        outbox.tell("g")
        told = await outbox.next()
        assert [reply.WhichOneof("reply") for reply in told] == [
            *("members_changed", "report_state", "report_state")
        ]
        assert [reply.report_state.request_id for reply in told[1:]] == [1, 2]
        waiting = asyncio.ensure_future(outbox.next())
        await asyncio.sleep(1)
        assert not waiting.done(), "everything is told once"
        outbox.command(command(3))
        assert [reply.report_state.request_id for reply in await waiting] == [3]

    run_in_virtual_time(main())


def test_a_client_that_does_not_read_is_not_told_without_end() -> None:
    outbox = Outbox()
    assert all(outbox.command(command(number)) for number in range(COMMANDS_MAX))
    assert not outbox.command(command(0))


def test_a_session_that_is_over_takes_no_command() -> None:
    async def main() -> None:
        outbox = Outbox()
        outbox.command(command(1))
        outbox.end()
        assert not outbox.command(command(2))
        assert await outbox.next() == []

    run_in_virtual_time(main())
