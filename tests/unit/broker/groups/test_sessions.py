"""What a session's stream is to tell."""

import asyncio

import pytest

from ternmq_broker.groups.sessions import (
    COMMANDS_MAX,
    DIFFERENCES_PAUSE_MS,
    REPLY_BYTES_MAX,
    SessionManager,
    SessionOutbox,
    WaitingTotal,
)
from ternmq_broker.groups.subscription_consistency import SubscriptionSet, subscription_set_of
from ternmq_broker.state.clients import ClientSession, ClientTable, GroupMembership
from ternmq_model.address import Address
from ternmq_model.subscription import parse_subscription
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time


def command(number: int) -> groups.SessionReply:
    return groups.SessionReply(report_state=groups.ReportState(request_id=number))


def test_commands_keep_their_order_behind_member_changes_which_merge() -> None:
    async def main() -> None:
        outbox = SessionOutbox()
        outbox.command(command(1))
        outbox.members_changed("g")
        outbox.command(command(2))
        outbox.members_changed("g")
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
    outbox = SessionOutbox()
    assert all(outbox.command(command(number)) for number in range(COMMANDS_MAX))
    assert not outbox.command(command(0))


def reply_of(size: int) -> groups.SessionReply:
    return groups.SessionReply(reply_arrived=groups.ReplyArrived(record=bytes(size)))


def test_unread_replies_are_bounded_by_their_bytes_until_they_are_written() -> None:
    async def main() -> None:
        outbox, large = SessionOutbox(), reply_of(REPLY_BYTES_MAX // 3)
        assert [outbox.command(large) for _ in range(3)] == [True, True, False]
        assert outbox.command(command(1)), "other commands have no bytes"
        assert len(await outbox.next()) == 3
        assert not outbox.command(large), "the replies are still being written"
        assert outbox.command(command(2))
        assert len(await outbox.next()) == 1
        assert [outbox.command(large) for _ in range(3)] == [True, True, False]

    run_in_virtual_time(main())


def test_unread_replies_of_all_clients_are_bounded_and_forgotten_with_their_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ternmq_broker.groups.sessions.ALL_REPLY_BYTES_MAX", 1000)
    waiting = WaitingTotal()
    one, two = SessionOutbox(waiting), SessionOutbox(waiting)

    async def main() -> None:
        assert one.command(reply_of(600))
        assert not two.command(reply_of(600))
        assert two.command(reply_of(100))
        assert len(await one.next()) == 1
        one.end()
        assert not two.command(reply_of(600)), "a stream that nobody reads is still being written"
        one.written()
        assert two.command(reply_of(600))
        two.end()
        assert waiting.bytes == 0

    run_in_virtual_time(main())


def test_broken_session_keeps_no_replies() -> None:
    async def main() -> None:
        members = Members()
        members.join("a", "x")
        session, outbox = members.streams["a"]
        assert members.sessions.command(session, reply_of(REPLY_BYTES_MAX // 2))
        members.sessions.broke(session)
        assert outbox.is_over
        members.join("a", "x")
        session, _ = members.streams["a"]
        replies = [reply_of(REPLY_BYTES_MAX // 3) for _ in range(2)]
        assert all(members.sessions.command(session, each) for each in replies)

    run_in_virtual_time(main())


def test_closed_session_takes_no_command() -> None:
    async def main() -> None:
        outbox = SessionOutbox()
        outbox.command(command(1))
        outbox.end()
        assert not outbox.command(command(2))
        assert await outbox.next() == []

    run_in_virtual_time(main())


def test_listener_is_called_when_a_client_leaves_a_group() -> None:
    async def main() -> None:
        left: list[tuple[str, str]] = []
        table = ClientTable(broken_ms=10, silent_ms=100)
        sessions = SessionManager(
            VirtualClock(), table, on_left=lambda who, group: left.append((who, group))
        )
        session = ClientSession("a@1", "1", Address("h", 1), connected_at_ms=0, heartbeat_at_ms=0)
        sessions.open(session)
        both = {name: GroupMembership(name, False, "", {}) for name in ("G", "H")}
        sessions.heartbeat(session, (), both)
        assert left == []
        sessions.heartbeat(session, (), {"H": both["H"]})
        assert left == [("a@1", "G")]
        sessions.goodbye(session)
        assert left == [("a@1", "G"), ("a@1", "H")]

    run_in_virtual_time(main())


class Members:
    """A broker's sessions, and what each client has read."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.sessions = SessionManager(self.clock, ClientTable(broken_ms=10_000, silent_ms=1 << 40))
        self.streams: dict[str, tuple[ClientSession, SessionOutbox]] = {}

    def join(self, client_id: str, wants: str, incarnation: str = "1") -> None:
        session = ClientSession(client_id, incarnation, Address("h", 1), 0, 0)
        outbox = self.sessions.open(session)
        assert isinstance(outbox, SessionOutbox)
        self.streams[client_id] = session, outbox
        self.beat(client_id, wants)

    def beat(self, client_id: str, wants: str) -> None:
        told = {"t": parse_subscription("t", wants)}
        session, _ = self.streams[client_id]
        self.sessions.heartbeat(session, (), {"g": GroupMembership("g", False, "", told)})

    async def told(self) -> dict[str, list[str]]:
        """Return the notices that each client reads now."""
        found: dict[str, list[str]] = {}
        for client_id, (_, outbox) in self.streams.items():
            outbox.command(command(0))  # so that there is something
            for reply in await outbox.next():
                if reply.HasField("subscriptions_differ"):
                    notice = "; ".join(reply.subscriptions_differ.differences)
                    found.setdefault(client_id, []).append(notice)
        return found


def test_first_difference_is_told_at_once_and_others_after_a_pause() -> None:
    async def main() -> None:
        members = Members()
        members.join("a", "x")
        members.join("b", "x")
        assert await members.told() == {}
        members.join("c", "y")
        first = "topic t: 'x' (a, b), 'y' (c)"
        assert await members.told() == {name: [first] for name in "abc"}
        members.beat("c", "z")
        members.join("d", "x")
        assert await members.told() == {"d": [first]}
        await asyncio.sleep(DIFFERENCES_PAUSE_MS / 1000)
        await members.sessions.expire()
        second = "topic t: 'x' (a, b, d), 'z' (c)"
        assert await members.told() == {name: [second] for name in "abcd"}
        members.beat("c", "x")
        assert await members.told() == {}
        for _ in range(3):
            await asyncio.sleep(DIFFERENCES_PAUSE_MS / 1000)
            await members.sessions.expire()
            members.beat("a", "x")
        assert await members.told() == {name: [""] for name in "abcd"}
        members.join("e", "y")
        assert set(await members.told()) == set("abcde")

    run_in_virtual_time(main())


def test_member_that_comes_again_is_told_though_nothing_is_new() -> None:
    async def main() -> None:
        members = Members()
        members.join("a", "x")
        members.join("b", "y")
        assert set(await members.told()) == {"a", "b"}
        members.sessions.broke(members.streams["b"][0])
        members.join("b", "y", incarnation="2")
        assert set(await members.told()) == {"b"}
        members.beat("b", "y")
        assert await members.told() == {}

    run_in_virtual_time(main())


@pytest.mark.parametrize("kinds", [1, 2, 300])
def test_telling_many_members_is_bounded(kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def counted(membership: GroupMembership) -> SubscriptionSet:
        nonlocal compared
        compared += 1
        return subscription_set_of(membership)

    monkeypatch.setattr(
        "ternmq_broker.groups.subscription_consistency.subscription_set_of", counted
    )

    async def main() -> None:
        members = Members()
        notices: list[str] = []
        for number in range(300):
            members.join(f"m{number:03}", f"x{number % kinds}")
            await asyncio.sleep(0.1)
            if not number % 10:
                await members.sessions.expire()
            notices += [each for told in (await members.told()).values() for each in told]
        assert compared == 300, "each says once what it wants"
        if kinds == 1:
            assert notices == []
        else:
            assert 300 <= len(notices) <= 300 + 30_000 / DIFFERENCES_PAUSE_MS * 300
            assert max(map(len, notices)) < 100

    run_in_virtual_time(main())
