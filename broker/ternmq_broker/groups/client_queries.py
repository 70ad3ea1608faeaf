"""Questions to clients that travel on their Sessions, and their answers.

Source: RocketMQ `Broker2Client`, `AdminBrokerProcessor.callConsumer`.
"""

import asyncio
from itertools import count
from typing import Final

from ternmq_broker.groups.sessions import SessionManager
from ternmq_broker.state.clients import ClientSession
from ternmq_protos.v1 import groups_pb2 as groups

WAITING_MAX: Final = 1_024
"""Questions that may wait for answers at a time."""


class ClientQueries:
    """Asks clients how consuming goes. Owns what waits for answers; on the broker's loop."""

    def __init__(self, sessions: SessionManager) -> None:
        self._sessions = sessions
        self._numbers = count(1)
        self._waiting: dict[int, tuple[ClientSession, asyncio.Future[groups.RunningState]]] = {}

    async def ask(
        self, session: ClientSession, group: str, *, timeout_s: float
    ) -> groups.RunningState | None:
        """Return what a client says of its part in a group; None when it says nothing in time.

        Cancelling is safe.
        """
        if len(self._waiting) >= WAITING_MAX:
            return None
        number = next(self._numbers)
        answer: asyncio.Future[groups.RunningState] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (session, answer)
        question = groups.ReportState(request_id=number, group=group)
        try:
            if not self._sessions.command(session, groups.SessionReply(report_state=question)):
                return None
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]

    def answered(self, session: ClientSession, state: groups.RunningState) -> None:
        """Take an answer. One that nobody waits for, or of another client, is passed over."""
        asked, answer = self._waiting.get(state.request_id, (None, None))
        if asked is session and answer is not None and not answer.done():
            answer.set_result(state)
