"""Queries to clients on their Sessions, and the RPCs for operators that answer from them.

Source: RocketMQ `Broker2Client`, `AdminBrokerProcessor.callConsumer`,
`AdminBrokerProcessor.getConsumerRunningInfo`, `ClientManageProcessor`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from ternmq_broker.groups.sessions import SessionManager
from ternmq_broker.state.clients import ClientSession
from ternmq_model.errors import refusal
from ternmq_model.names import check_group, check_stored_group
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.pagination import names_of, page_of, token_of
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import DESCRIBE_CONSUMER, LIST_PRODUCERS

WAITING_MAX: Final = 1_024
"""Limit on the queries that wait for answers at a time."""

ANSWER_TIMEOUT_S: Final = 2.0
"""Timeout of a consumer's answer; the operator's own timeout is longer."""


class ClientQueries:
    """Queries to clients and the futures of their answers. Owned by the broker's loop."""

    def __init__(self, sessions: SessionManager) -> None:
        self._sessions = sessions
        self._numbers = count(1)
        self._waiting: dict[int, tuple[ClientSession, asyncio.Future[groups.RunningState]]] = {}

    async def ask(
        self, session: ClientSession, group: str, *, timeout_s: float
    ) -> groups.RunningState | None:
        """Return a client's report about its part in a group; None without one in time.

        Cancelling is safe.
        """
        if len(self._waiting) >= WAITING_MAX:
            return None
        number = next(self._numbers)
        answer: asyncio.Future[groups.RunningState] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (session, answer)
        query = groups.ReportState(request_id=number, group=group)
        try:
            if not self._sessions.command(session, groups.SessionReply(report_state=query)):
                return None
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]

    def answered(self, session: ClientSession, state: groups.RunningState) -> None:
        """Accept an answer of the client that was asked, while its query waits."""
        asked, answer = self._waiting.get(state.request_id, (None, None))
        if asked is session and answer is not None and not answer.done():
            answer.set_result(state)


@dataclass(frozen=True, slots=True)
class ClientQueryService:
    """Handlers of DescribeConsumer and ListProducers. Owns nothing."""

    sessions: SessionManager
    client_queries: ClientQueries

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of DescribeConsumer and ListProducers."""
        return (
            unary(DESCRIBE_CONSUMER, self.describe_consumer),
            unary(LIST_PRODUCERS, self.list_producers),
        )

    async def describe_consumer(
        self, request: admin.DescribeConsumerRequest, call: Call
    ) -> admin.DescribeConsumerReply:
        """Return the report of one member of a group. Cancelling is safe."""
        group, client_id = check_stored_group(request.group), request.client_id
        session = next(
            (one for one in self.sessions.table.members(group) if one.client_id == client_id), None
        )
        if session is None:
            remark = f"{client_id[:100]!r} is no live member of group {group!r}"
            raise refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        state = await self.client_queries.ask(session, group, timeout_s=ANSWER_TIMEOUT_S)
        if state is None:
            remark = f"{client_id!r} of group {group!r} does not answer"
            raise refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        return admin.DescribeConsumerReply(state=state)

    async def list_producers(
        self, request: admin.ListProducersRequest, call: Call
    ) -> admin.ListProducersReply:
        """Return the live members of one producer group, or of all groups."""
        requested = check_group(request.group) if request.group else ""
        behind = names_of(request.page_token)
        found = sorted(
            (group, session.client_id, session)
            for session in self.sessions.table.sessions()
            for group in session.producer_groups
            if requested in ("", group) and (group, session.client_id) > behind
        )
        members = (
            admin.ProducerMember(
                group=group,
                client_id=client_id,
                address=str(session.address),
                connected_at_ms=session.connected_at_ms,
            )
            for group, client_id, session in found
        )
        page, has_more = page_of(members, request.page_size, lambda member: member.ByteSize())
        token = token_of(page[-1].group, page[-1].client_id) if has_more else ""
        return admin.ListProducersReply(producers=page, next_page_token=token)
