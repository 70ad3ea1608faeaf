"""DescribeConsumer and ListProducers: what single clients do, for operators.

Source: RocketMQ `AdminBrokerProcessor.getConsumerRunningInfo`, `ClientManageProcessor`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_broker.groups.client_queries import ClientQueries
from ternmq_broker.groups.sessions import SessionManager
from ternmq_model.errors import refusal
from ternmq_model.names import check_group, check_kept_group
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.pagination import names_of, page_of, token_of
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import DESCRIBE_CONSUMER, LIST_PRODUCERS

ANSWER_TIMEOUT_S: Final = 2.0
"""How long a consumer may take; an operator's own patience is longer."""


@dataclass(frozen=True, slots=True)
class ClientQueryService:
    """Serves questions about clients. Owns nothing."""

    sessions: SessionManager
    questions: ClientQueries

    def handlers(self) -> Sequence[Handler]:
        """Return what to serve."""
        return (
            unary(DESCRIBE_CONSUMER, self.describe_consumer),
            unary(LIST_PRODUCERS, self.list_producers),
        )

    async def describe_consumer(
        self, request: admin.DescribeConsumerRequest, call: Call
    ) -> admin.DescribeConsumerReply:
        """Ask one member of a group how consuming goes. Cancelling is safe."""
        group, client_id = check_kept_group(request.group), request.client_id
        session = next(
            (one for one in self.sessions.table.members(group) if one.client_id == client_id), None
        )
        if session is None:
            remark = f"{client_id[:100]!r} is no live member of group {group!r}"
            raise refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        state = await self.questions.ask(session, group, timeout_s=ANSWER_TIMEOUT_S)
        if state is None:
            remark = f"{client_id!r} of group {group!r} does not answer"
            raise refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        return admin.DescribeConsumerReply(state=state)

    async def list_producers(
        self, request: admin.ListProducersRequest, call: Call
    ) -> admin.ListProducersReply:
        """Tell the live members of one producer group, or of all."""
        wanted = check_group(request.group) if request.group else ""
        behind = names_of(request.page_token, 2)
        found = sorted(
            (group, session.client_id, session)
            for session in self.sessions.table.sessions()
            for group in session.producer_groups
            if wanted in ("", group) and (group, session.client_id) > behind
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
