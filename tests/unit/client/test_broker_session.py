"""What a Session writes."""

import asyncio
from random import Random
from typing import Any, cast

import pytest

from ternmq_client.broker_session import BrokerSession
from ternmq_client.heartbeat_data import HeartbeatData
from ternmq_client.retry_policy import RetryPolicy
from ternmq_model.errors import ConnectionLost, TernError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time


class SlowStream:
    """A stream whose writes take a second, and that bears one at a time, as gRPC's do."""

    def __init__(self) -> None:
        self.written: list[str | None] = []
        self.is_writing = False
        self._replies: asyncio.Queue[groups.SessionReply | None] = asyncio.Queue()
        self._replies.put_nowait(groups.SessionReply(welcome=groups.Welcome()))

    async def write(self, request: groups.SessionRequest) -> None:
        assert not self.is_writing, "two writes at a time"
        self.is_writing = True
        await asyncio.sleep(0.3)
        self.is_writing = False
        self.written.append(request.WhichOneof("request"))

    async def read(self) -> groups.SessionReply | None:
        return await self._replies.get()

    def tell(self, reply: groups.SessionReply) -> None:
        self._replies.put_nowait(reply)

    async def finish(self) -> None:
        self._replies.put_nowait(None)

    def cancel(self) -> None:
        pass


class Alone:
    """A client with one broker."""

    client_id = "c@1"

    def __init__(self) -> None:
        self.stream = SlowStream()
        self.env = Environment(
            clock=VirtualClock(),
            network=cast("Any", None),
            random=Random(1),
            blocking=InlineBlocking(),
        )

    async def broker(self, broker_name: str, broker_id: int = 0) -> Connection:
        return cast("Connection", self)

    def forget(self, broker_name: str, connection: Connection, broker_id: int = 0) -> None:
        raise AssertionError("is not called")

    def look_for(self, broker_name: str) -> None:
        raise AssertionError("is not called")

    def open(self, rpc: object) -> SlowStream:
        return self.stream


def test_goodbye_waits_for_a_pending_heartbeat_and_is_the_last_message() -> None:
    async def main() -> None:
        member = Alone()
        session = BrokerSession(
            "b",
            0,
            member,
            HeartbeatData(),
            incarnation="1",
            heartbeat_s=30,
            answer_timeout_s=3,
            retry=RetryPolicy(),
            on_members_changed=lambda _: None,
            on_command=lambda _reply, _broker: None,
        )
        running = asyncio.ensure_future(session.run())
        await session.attempted.wait()
        session.send_heartbeat()
        await asyncio.sleep(0.1)
        assert member.stream.is_writing
        session.send_heartbeat()
        await session.close()
        await running
        assert member.stream.written == ["hello", "heartbeat", "goodbye"]

    run_in_virtual_time(main())


def test_commands_are_handled_and_answered_before_the_next_heartbeat() -> None:
    async def main() -> None:
        member = Alone()
        heard: list[tuple[str | None, str]] = []

        def on_command(reply: groups.SessionReply, broker: str) -> None:
            heard.append((reply.WhichOneof("reply"), broker))
            if reply.HasField("report_state"):
                session.say(groups.SessionRequest(running_state=groups.RunningState(request_id=7)))

        session = BrokerSession(
            "b",
            0,
            member,
            HeartbeatData(),
            incarnation="1",
            heartbeat_s=30,
            answer_timeout_s=3,
            retry=RetryPolicy(),
            on_members_changed=lambda _: None,
            on_command=on_command,
        )
        running = asyncio.ensure_future(session.run())
        await session.attempted.wait()
        member.stream.tell(groups.SessionReply(report_state=groups.ReportState(request_id=7)))
        await asyncio.sleep(1)
        await session.close()
        await running
        assert heard == [("welcome", "b"), ("report_state", "b")]
        assert member.stream.written == ["hello", "running_state", "heartbeat", "goodbye"]

    run_in_virtual_time(main())


class Refusing(Alone):
    """A client with a broker that refuses it, each time for the next of these reasons."""

    def __init__(self, *reasons: TernError) -> None:
        super().__init__()
        self._reasons = list(reasons)

    def look_for(self, broker_name: str) -> None:
        pass

    async def broker(self, broker_name: str, broker_id: int = 0) -> Connection:
        if self._reasons:
            raise self._reasons.pop(0)
        return await super().broker(broker_name, broker_id)


def test_refusals_are_logged_each_time_their_reason_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refused(remark: str) -> TernError:
        return refusal(ResponseCode.ILLEGAL_OPERATION, remark)

    async def main() -> None:
        member = Refusing(
            ConnectionLost("the broker restarts"),
            ConnectionLost("it still does"),
            refused("x wants eu"),
            refused("x wants eu"),
            refused("x wants jp"),
            ConnectionLost("away again"),
        )
        session = BrokerSession(
            "b",
            0,
            member,
            HeartbeatData(),
            incarnation="1",
            heartbeat_s=30,
            answer_timeout_s=3,
            retry=RetryPolicy(),
            on_members_changed=lambda _: None,
            on_command=lambda _reply, _broker: None,
        )
        running = asyncio.ensure_future(session.run())
        await asyncio.sleep(60)
        await session.close()
        await running
        lost = [each for each in caplog.records if each.getMessage().startswith("session lost")]
        reasons = [each.getMessage().partition("err=")[2] for each in lost]
        levels = [each.levelname for each in lost]
        assert levels == ["INFO", "WARNING", "WARNING"]
        assert "the broker restarts" in reasons[0]
        assert "x wants eu" in reasons[1]
        assert "x wants jp" in reasons[2]

    caplog.set_level("INFO")
    run_in_virtual_time(main())
