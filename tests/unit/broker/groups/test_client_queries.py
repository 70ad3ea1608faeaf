import asyncio

import pytest

from ternmq_broker.groups import client_queries
from ternmq_broker.groups.client_queries import ClientQueries
from ternmq_broker.groups.sessions import SessionManager, SessionOutbox
from ternmq_broker.state.clients import ClientSession, ClientTable
from ternmq_model.address import Address
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time


def session(client_id: str) -> ClientSession:
    return ClientSession(client_id, "1", Address("host", 1), connected_at_ms=0, heartbeat_at_ms=0)


def opened(*client_ids: str) -> tuple[ClientQueries, list[tuple[ClientSession, SessionOutbox]]]:
    sessions = SessionManager(VirtualClock(), ClientTable(broken_ms=1, silent_ms=1))
    there: list[tuple[ClientSession, SessionOutbox]] = []
    for client_id in client_ids:
        one = session(client_id)
        outbox = sessions.open(one)
        assert isinstance(outbox, SessionOutbox)
        there.append((one, outbox))
    return ClientQueries(sessions), there


async def asked(outbox: SessionOutbox) -> int:
    (command,) = await outbox.next()
    assert command.report_state.group == "G"
    return command.report_state.request_id


def test_running_state_is_accepted_only_from_the_client_asked() -> None:
    async def main() -> None:
        asking, [(one, outbox), (other, _)] = opened("a@1", "b@1")
        question = asyncio.ensure_future(asking.ask(one, "G", timeout_s=5))
        number = await asked(outbox)
        asking.answered(one, groups.RunningState(request_id=number + 1, group="wrong"))
        asking.answered(other, groups.RunningState(request_id=number, group="wrong"))
        asking.answered(one, groups.RunningState(request_id=number, group="right"))
        asking.answered(one, groups.RunningState(request_id=number, group="late"))
        state = await question
        assert state is not None
        assert state.group == "right"

    run_in_virtual_time(main())


def test_timeout_or_missing_stream_means_no_answer() -> None:
    async def main() -> None:
        asking, [(one, outbox)] = opened("a@1")
        assert await asking.ask(one, "G", timeout_s=5) is None
        await asked(outbox)
        assert await asking.ask(session("c@1"), "G", timeout_s=5) is None

    run_in_virtual_time(main())


def test_pending_questions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_queries, "WAITING_MAX", 1)

    async def main() -> None:
        asking, [(one, outbox)] = opened("a@1")
        first = asyncio.ensure_future(asking.ask(one, "G", timeout_s=5))
        number = await asked(outbox)
        assert await asking.ask(one, "G", timeout_s=5) is None
        asking.answered(one, groups.RunningState(request_id=number))
        assert await first is not None

    run_in_virtual_time(main())
