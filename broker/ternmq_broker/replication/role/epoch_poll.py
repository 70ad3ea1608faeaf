"""The poll of NameServers and members for the highest epoch of a broker name."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from ternmq_broker.replication.role.start_policy import Answer, MemberAnswer, NameServerAnswer
from ternmq_broker.state.epochs import Epoch, newest_reached
from ternmq_model.address import Address
from ternmq_model.epochs import EPOCH_MAX, doubt_of
from ternmq_model.errors import TernError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import MASTER_ID, BrokerMember
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import ANY_MEMBER, Connection, Identity, connected
from ternmq_remoting.service_methods import GET_EPOCH, REPLICATION_STATUS

T = TypeVar("T")
MemberReply = tuple[BrokerMember, replication.ReplicationStatusReply | None]

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S: Final = 2.0
"""Limit on the time of one answer; all peers are asked at once."""

_CONNECT_TIMEOUT_S: Final = 1.0


class EpochAnswer(NamedTuple):
    """Answer of a peer to the poll, with the addresses of the peer."""

    answer: Answer
    addresses: tuple[Address, ...]
    broker_id: int | None = None
    """Id of the member; None for a NameServer."""

    def is_other_than(self, host: str, broker_ids: Set[int]) -> bool:
        """Return whether a process other than the claiming one gave the answer."""
        if self.broker_id is None:
            return True
        return self.broker_id not in broker_ids and all(
            each.host != host for each in self.addresses
        )


@dataclass(frozen=True, slots=True)
class EpochPollResult:
    """Answers to one poll."""

    accepted: tuple[EpochAnswer, ...]
    """Accepted answers."""

    unreachable: tuple[str, ...]
    """Addresses that gave no answer, as HOST:PORT."""

    missing_slaves: tuple[int, ...] = ()
    """Ids of slaves that gave no answer and are not known under another id too."""

    has_foreign_master: bool = False
    """True when a master of another store, or of an implausible epoch, serves under the name.
    `answers` leaves such members out."""

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Answers without their addresses."""
        return tuple(each.answer for each in self.accepted)

    @property
    def answered(self) -> tuple[str, ...]:
        """Addresses that answered, as HOST:PORT."""
        return tuple(str(each.addresses[0]) for each in self.accepted)

    @property
    def members(self) -> tuple[MemberAnswer, ...]:
        """Answers of members, without those of NameServers."""
        return tuple(each for each in self.answers if isinstance(each, MemberAnswer))

    @property
    def highest(self) -> int:
        """Highest epoch among the answers; 0 without any."""
        return max((each.highest or 0 for each in self.answers), default=0)

    def confirmed(self, claims: Mapping[str, Set[int]]) -> tuple[int, str]:
        """Return the highest epoch that another process than the claiming one reports, and where.

        Args:
            claims: Ids of claiming members, by host. Two hosts confirm each other.
        """
        reported = (
            (each.answer.highest or 0, str(each.addresses[0]))
            for each in self.accepted
            if any(each.is_other_than(*claim) for claim in claims.items())
        )
        return max(reported, default=(0, ""))


class EpochPoll:
    """Poll for one broker name. Stores only rejected answers, to log each once.

    Args:
        store_id: Returns the id of the own log's store; "" for a new log. Epochs that members of
            another store report do not count.
        known: Returns the highest epoch that this member knows of. A member's answer that is too
            far above it, and above the NameServers' answers, is rejected.
    """

    def __init__(
        self,
        env: Environment,
        *,
        cluster: str,
        name: str,
        nameservers: Sequence[Address],
        members: Callable[[], Awaitable[Sequence[BrokerMember]]],
        store_id: Callable[[], str] = str,
        known: Callable[[], int] = int,
    ) -> None:
        self._env = env
        self._cluster = cluster
        self._name = name
        self._nameservers = nameservers
        self._members = members
        self._store_id = store_id
        self._known = known
        self._doubts: dict[str, str] = {}
        """Reasons for which answers of the last poll were rejected, by address."""

    async def ask(self, *, own_id: int | None = None) -> EpochPollResult:
        """Poll NameServers and members for at most two seconds. Cancelling is safe.

        Args:
            own_id: Id under which this member serves, whose answer is left out; None while the
                member does not serve.
        """
        from_nameservers, replies = await asyncio.gather(
            asyncio.gather(*(self._ask_nameserver(each) for each in self._nameservers)),
            self._ask_members(),
        )
        others = [
            (member, reply)
            for member, reply in replies
            if (member.broker_id if reply is None else reply.broker_id) != own_id
        ]
        foreign = [answer_of(reply) for _, reply in others if self._is_foreign(reply)]
        ours = [(member, reply) for member, reply in others if not self._is_foreign(reply)]
        before, self._doubts = self._doubts, {}
        accepted = [
            EpochAnswer(answer, (address,))
            for address, answer in from_nameservers
            if answer is not None and not self._doubt(address, answer, EPOCH_MAX)
        ]
        known = max([self._known(), *(each.answer.highest or 0 for each in accepted)])
        doubted: list[MemberAnswer] = []
        is_alone = not accepted
        for member, reply in ours:
            answer = answer_of(reply)
            if reply is None or answer is None:
                continue
            is_master = is_alone and self._is_master_of_log(reply, answer)
            bound = EPOCH_MAX if is_master else known
            if self._doubt(member.endpoints[0], answer, bound):
                doubted.append(answer)
            else:
                accepted.append(EpochAnswer(answer, member.endpoints, reply.broker_id))
        for who, doubt in self._doubts.items():
            if before.get(who) != doubt:  # a waiting master polls each second
                logger.error("answer rejected member=%s reason=%s", who, doubt)
        asked = [
            *(str(address) for address, _ in from_nameservers),
            *(str(member.endpoints[0]) for member, _ in ours),
        ]
        answered = {str(each.addresses[0]) for each in accepted}
        return EpochPollResult(
            tuple(accepted),
            tuple(each for each in asked if each not in answered),
            missing_slaves(replies, own_id),
            any(each is not None and each.is_master for each in (*foreign, *doubted)),
        )

    def _doubt(self, address: Address, answer: Answer, known: int) -> str:
        """Return the reason to reject an answer, and record it; "" for an accepted answer."""
        doubt = doubt_of(answer.highest or 0, known)
        if doubt:
            self._doubts[str(address)] = doubt
        return doubt

    def _is_master_of_log(
        self, reply: replication.ReplicationStatusReply, answer: MemberAnswer
    ) -> bool:
        """Return whether a member is the master of this store in the epoch that it reports.

        The epoch of such a master may be further away than a stranger's may be: while this
        member was away, a stranger registered, and then a slave was promoted. Without an answer
        of a NameServer, the member's answer must suffice; otherwise the old master would never
        learn of the new one.
        """
        own = self._store_id()
        is_own = bool(own) and reply.store_id == own
        return is_own and answer.is_master and answer.newest == answer.highest

    async def _ask_nameserver(self, address: Address) -> tuple[Address, NameServerAnswer | None]:
        async def ask(connection: Connection) -> NameServerAnswer:
            request = nameserver.GetEpochRequest(cluster=self._cluster, broker_name=self._name)
            reply = await connection.call(GET_EPOCH, request, timeout_s=ASK_TIMEOUT_S)
            return NameServerAnswer(reply.highest_epoch if reply.is_known else None)

        return address, await self._asked((address,), ask)

    async def _ask_members(self) -> Sequence[MemberReply]:
        members = [each for each in await self._members() if each.endpoints]
        replies = await asyncio.gather(*(self._ask_member(each) for each in members))
        return list(zip(members, replies, strict=True))

    async def _ask_member(self, member: BrokerMember) -> replication.ReplicationStatusReply | None:
        async def ask(connection: Connection) -> replication.ReplicationStatusReply:
            request = replication.ReplicationStatusRequest()
            return await connection.call(REPLICATION_STATUS, request, timeout_s=ASK_TIMEOUT_S)

        expect = Identity(self._cluster, self._name, ANY_MEMBER, 0)
        return await self._asked(member.endpoints, ask, expect=expect)

    def _is_foreign(self, reply: replication.ReplicationStatusReply | None) -> bool:
        own = self._store_id()
        return reply is not None and bool(own and reply.store_id) and reply.store_id != own

    async def _asked(
        self,
        addresses: Sequence[Address],
        ask: Callable[[Connection], Awaitable[T]],
        *,
        expect: Identity | None = None,
    ) -> T | None:
        """Return the answer of a peer; None without an answer in time."""
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                network = self._env.network
                async with connected(
                    network, addresses, expect=expect, timeout_s=_CONNECT_TIMEOUT_S
                ) as connection:
                    return await ask(connection)
        except (TernError, TimeoutError) as error:
            logger.debug("no answer address=%s err=%s", addresses[0], error)
            return None


def answer_of(reply: replication.ReplicationStatusReply | None) -> MemberAnswer | None:
    """Return the answer to a poll that a member's status contains."""
    if reply is None:
        return None
    end = PhysicalOffset(max(0, reply.log_end))
    epochs = tuple(Epoch(each.number, PhysicalOffset(each.start)) for each in reply.epochs)
    highest = max([reply.highest_epoch, *(each.number for each in epochs)])
    is_master = reply.broker_id == MASTER_ID and not reply.is_fenced
    is_following = reply.following.is_connected
    return MemberAnswer(highest, newest_reached(epochs, end), end, is_master, is_following)


def missing_slaves(replies: Iterable[MemberReply], own_id: int | None) -> tuple[int, ...]:
    """Return the ids of the slaves that did not answer.

    A member that had another id before is known under both ids, with the same endpoints. It is
    not missing when it answers or is the master under either id.

    Args:
        replies: Replies of all members.
        own_id: Id of the polling member.
    """
    others: set[frozenset[Address]] = set()
    silent: list[BrokerMember] = []
    for member, reply in replies:
        if reply is None and member.broker_id not in (MASTER_ID, own_id):
            silent.append(member)
        else:
            others.add(frozenset(member.endpoints))
    return tuple(each.broker_id for each in silent if frozenset(each.endpoints) not in others)


def named(who: Iterable[str]) -> str:
    """Return a list of addresses for the log."""
    return ",".join(who) or "nobody"
