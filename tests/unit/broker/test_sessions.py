"""What a session's stream is to tell."""

import asyncio

from ternmq_broker.clients import ClientTable, GroupMembership, Session
from ternmq_broker.sessions import COMMANDS_MAX, Outbox, Sessions
from ternmq_model.address import Address
from ternmq_protos.v1 import groups_pb2 as groups
from tests.support.virtual_time import VirtualClock, run_in_virtual_time


def command(number: int) -> groups.SessionReply:
    return groups.SessionReply(report_state=groups.ReportState(request_id=number))


def test_commands_keep_their_order_behind_member_changes_which_merge() -> None:
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


def test_commands_to_a_client_that_does_not_read_are_bounded() -> None:
    outbox = Outbox()
    assert all(outbox.command(command(number)) for number in range(COMMANDS_MAX))
    assert not outbox.command(command(0))


def test_closed_session_takes_no_command() -> None:
    async def main() -> None:
        outbox = Outbox()
        outbox.command(command(1))
        outbox.end()
        assert not outbox.command(command(2))
        assert await outbox.next() == []

    run_in_virtual_time(main())


def test_listener_is_called_when_a_client_leaves_a_group() -> None:
    async def main() -> None:
        left: list[tuple[str, str]] = []
        table = ClientTable(broken_ms=10, silent_ms=100)
        sessions = Sessions(
            VirtualClock(), table, on_left=lambda who, group: left.append((who, group))
        )
        session = Session("a@1", "1", Address("h", 1), connected_at_ms=0, heard_at_ms=0)
        sessions.open(session)
        both = {name: GroupMembership(name, False, "", {}) for name in ("G", "H")}
        sessions.heard(session, (), both)
        assert left == []
        sessions.heard(session, (), {"H": both["H"]})
        assert left == [("a@1", "G")]
        sessions.goodbye(session)
        assert left == [("a@1", "G"), ("a@1", "H")]

    run_in_virtual_time(main())
