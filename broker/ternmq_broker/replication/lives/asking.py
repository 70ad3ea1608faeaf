"""Asking NameServers and members for the highest epoch of a broker name."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from ternmq_broker.replication.epochs import Epoch, newest_reached
from ternmq_broker.replication.lives.starting import Answer, MemberAnswer, NameServerAnswer
from ternmq_model.address import Address
from ternmq_model.epochs import doubt_of
from ternmq_model.errors import TernError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import MASTER_ID, BrokerMember
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.contracts import GET_EPOCH, REPLICATION_STATUS
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection

T = TypeVar("T")
MemberReply = tuple[BrokerMember, replication.ReplicationStatusReply | None]

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S: Final = 2.0
"""For each who is asked; all are asked side by side."""

_CONNECT_TIMEOUT_S: Final = 1.0


class FindsMembers(Protocol):
    """Knows the members of the broker name."""

    async def members(self) -> Sequence[BrokerMember]:
        """Return every member that a NameServer tells or that is remembered."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of asking."""

    answers: tuple[Answer, ...]
    answered: tuple[str, ...]
    """Who answered, as HOST:PORT."""

    unreachable: tuple[str, ...]
    """Who did not."""

    missing_slaves: tuple[int, ...] = ()
    """Ids of slaves that did not, as far as they are not known as another member, too."""

    has_foreign_master: bool = False
    """A master of another store, or of an epoch that is not believed, serves under the name. Such
    members are not among `answers`."""

    ids: tuple[int | None, ...] = ()
    """Of the members in `answered`; None for a NameServer."""

    @property
    def members(self) -> tuple[MemberAnswer, ...]:
        """The answers of members alone."""
        return tuple(each for each in self.answers if isinstance(each, MemberAnswer))

    @property
    def highest(self) -> int:
        """The highest epoch that anybody told; 0 for none."""
        return max((each.highest or 0 for each in self.answers), default=0)

    def confirmed(self, claimants: Collection[int]) -> tuple[int, str]:
        """Return the highest epoch told by somebody other than who claims one, and by whom.

        Args:
            claimants: Ids of members. Two of them confirm each other.
        """
        told = (
            (answer.highest or 0, who)
            for answer, who, broker_id in zip(self.answers, self.answered, self.ids, strict=True)
            if any(each != broker_id for each in claimants)
        )
        return max(told, default=(0, ""))


class Asker:
    """Asks for one broker name. Keeps nothing.

    Args:
        env: Network.
        cluster: That the broker belongs to.
        name: That its members share.
        nameservers: Every one of them.
        finder: Knows the members.
        store_id: Returns whose bytes the own log holds; "" when nobody's yet. What members of
            another store know of epochs does not count.
        known: Returns the highest epoch that is known here. An answer that is too far above it is
            none: it neither deposes nor confirms.
    """

    def __init__(
        self,
        env: Environment,
        *,
        cluster: str,
        name: str,
        nameservers: Sequence[Address],
        finder: FindsMembers,
        store_id: Callable[[], str] = str,
        known: Callable[[], int] = int,
    ) -> None:
        self._env = env
        self._cluster = cluster
        self._name = name
        self._nameservers = nameservers
        self._finder = finder
        self._store_id = store_id
        self._known = known

    async def ask(self, *, own_id: int | None = None) -> Asked:
        """Ask everybody, and return what came within seconds. Cancelling is safe.

        Args:
            own_id: Under which this member serves, so that its own answer is left out; None while
                it does not.
        """
        from_nameservers, replies = await asyncio.gather(
            asyncio.gather(*(self._ask_nameserver(each) for each in self._nameservers)),
            self._ask_members(),
        )
        others = [
            (str(member.endpoints[0]), reply)
            for member, reply in replies
            if (member.broker_id if reply is None else reply.broker_id) != own_id
        ]
        foreign = [answer_of(reply) for _, reply in others if self._is_foreign(reply)]
        from_members = [
            (who, answer_of(reply), None if reply is None else reply.broker_id)
            for who, reply in others
            if not self._is_foreign(reply)
        ]
        every: list[tuple[str, Answer | None, int | None]] = [
            *((who, answer, None) for who, answer in from_nameservers),
            *from_members,
        ]
        told = [(who, answer, of) for who, answer, of in every if self._is_taken(who, answer)]
        return Asked(
            tuple(answer for _, answer, _ in told if answer is not None),
            tuple(who for who, _, _ in told),
            tuple(each[0] for each in every if each not in told),
            missing_slaves(replies, own_id),
            any(
                each is not None and each.is_master
                for each in (*foreign, *(each[1] for each in from_members if each not in told))
            ),
            tuple(of for _, _, of in told),
        )

    def _is_taken(self, who: str, answer: Answer | None) -> bool:
        """Tell whether somebody answered, and what can be; log it when it cannot."""
        doubt = "" if answer is None else doubt_of(answer.highest or 0, self._known())
        if doubt:
            logger.error("answer not taken from=%s reason=%s", who, doubt)
        return answer is not None and not doubt

    async def _ask_nameserver(self, address: Address) -> tuple[str, Answer | None]:
        async def ask(connection: Connection) -> Answer:
            request = nameserver.GetEpochRequest(cluster=self._cluster, broker_name=self._name)
            reply = await connection.call(GET_EPOCH, request, timeout_s=ASK_TIMEOUT_S)
            return NameServerAnswer(reply.highest_epoch if reply.is_known else None)

        return str(address), await self._asked((address,), ask)

    async def _ask_members(self) -> Sequence[MemberReply]:
        members = [each for each in await self._finder.members() if each.endpoints]
        replies = await asyncio.gather(*(self._ask_member(each) for each in members))
        return list(zip(members, replies, strict=True))

    async def _ask_member(self, member: BrokerMember) -> replication.ReplicationStatusReply | None:
        async def ask(connection: Connection) -> replication.ReplicationStatusReply:
            request = replication.ReplicationStatusRequest()
            return await connection.call(REPLICATION_STATUS, request, timeout_s=ASK_TIMEOUT_S)

        reply = await self._asked(member.endpoints, ask)
        if reply is None or (reply.cluster, reply.broker_name) == (self._cluster, self._name):
            return reply
        logger.debug("another broker answers where a member was address=%s", member.endpoints[0])
        return None

    def _is_foreign(self, reply: replication.ReplicationStatusReply | None) -> bool:
        own = self._store_id()
        return reply is not None and bool(own and reply.store_id) and reply.store_id != own

    async def _asked(
        self, addresses: Sequence[Address], ask: Callable[[Connection], Awaitable[T]]
    ) -> T | None:
        """Return what a peer answers; None if it does not, in time."""
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                connection = await self._env.network.connect(
                    addresses, timeout_s=_CONNECT_TIMEOUT_S
                )
                try:
                    return await ask(connection)
                finally:
                    await connection.close()
        except (TernError, TimeoutError) as error:
            logger.debug("no answer address=%s error=%s", addresses[0], error)
            return None


def answer_of(reply: replication.ReplicationStatusReply | None) -> MemberAnswer | None:
    """Return what a member's status says of epochs."""
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

    A member that had another id before is known under both, with the same endpoints: one that
    answers, or is the master, is no slave that is missing.

    Args:
        replies: Of all members.
        own_id: Of the member that asks.
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
