"""Discovery of the members of a broker's name, and of the master among them.

Brokers find each other as clients find them: NameServers report members, all endpoints of a member
are tried at once, and a connection counts only if the peer has the expected identity.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ternmq_model.address import Address, resolve_addresses
from ternmq_model.epochs import doubt_of
from ternmq_model.errors import TernError, Unreachable
from ternmq_model.route import MASTER_ID, BrokerMember
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.converters import broker_data_from_pb
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection, Identity, connected
from ternmq_remoting.service_methods import GET_CLUSTER

logger = logging.getLogger(__name__)

_ASK_TIMEOUT_S: Final = 1.0
"""Limit on the connection to a NameServer, and on its answer; all are asked at once."""

_CONNECT_TIMEOUT_S: Final = 1.0
_MEMBERS_MAX: Final = 64


class MemberDiscovery:
    """Search for the members of one broker name. Stores members through `remember` only.

    Args:
        nameservers: Addresses of all NameServers; their hosts replace "*" in endpoints.
        remembered: Returns the members as they were last known.
        remember: Called with the members whenever they have changed.
    """

    def __init__(
        self,
        env: Environment,
        *,
        cluster: str,
        name: str,
        nameservers: Sequence[Address],
        remembered: Callable[[], Sequence[BrokerMember]],
        remember: Callable[[Sequence[BrokerMember]], None],
    ) -> None:
        self._env = env
        self.cluster = cluster
        self.name = name
        self._nameservers = tuple(nameservers)
        self._remembered = remembered
        self._remember = remember

    async def members(self) -> Sequence[BrokerMember]:
        """Return every member that a NameServer reports or that is remembered, by id.

        The call takes two seconds at most. Members that no NameServer knows any more stay
        remembered, since the NameServers may have restarted.
        """
        answers = await asyncio.gather(*(self._ask(each) for each in self._nameservers))
        reported = merged(member for answer in answers for member in answer)
        remembered = list(self._remembered())
        members = with_remembered(reported, remembered)[:_MEMBERS_MAX]
        if reported and members != sorted(remembered, key=lambda each: each.broker_id):
            self._remember(members)
        return members

    def note(self, brokers: Iterable[common.BrokerData], nameserver: Address, own_id: int) -> None:
        """Remember the members that a NameServer reports, if they have changed.

        A master that restarts without a NameServer polls the remembered members. A broker without
        other members remembers none.

        Args:
            brokers: Members as the NameServer reports them.
            nameserver: Address of the NameServer.
            own_id: Id of this member.
        """
        hosts = [nameserver.host, *(each.host for each in self._nameservers)]
        reported = {each.broker_id: each for each in self._members_of(brokers, hosts)}
        if (own := reported.get(own_id)) is not None:
            # An entry with the same endpoints and another id is an older one of this member.
            others = (
                each for each in reported.values() if set(each.endpoints) != set(own.endpoints)
            )
            reported = {own_id: own, **{each.broker_id: each for each in others}}
        known = {each.broker_id: each for each in self._remembered()}
        if not known and not reported.keys() - {own_id}:
            return
        if any(
            broker_id not in known or set(known[broker_id].endpoints) != set(member.endpoints)
            for broker_id, member in reported.items()
        ):
            self._remember(with_remembered(reported, known.values())[:_MEMBERS_MAX])

    async def master(self, *, epoch_min: int, own_id: int) -> Connection:
        """Return a connection to the master of the name.

        The address may be one under which another member was known: that of a promoted slave.

        Args:
            epoch_min: Lowest epoch of a master that is accepted.
            own_id: Id of this member, whose endpoints are skipped.

        Raises:
            Unreachable: No master answers.
        """
        members = await self.members()
        own = {
            each for member in members if member.broker_id == own_id for each in member.endpoints
        }
        found = dict.fromkeys(each for member in members for each in member.endpoints)
        candidates = [each for each in found if each not in own]
        highest = max([epoch_min, *(each.epoch for each in members)])
        if not candidates:
            raise Unreachable(f"no NameServer knows a member of broker {self.name}")
        expect = Identity(self.cluster, self.name, MASTER_ID, highest)
        return await self._env.network.connect(
            tuple(candidates), expect=expect, timeout_s=_CONNECT_TIMEOUT_S
        )

    async def _ask(self, address: Address) -> Sequence[BrokerMember]:
        """Return the members that one NameServer reports; none without an answer."""
        try:
            async with connected(
                self._env.network, [address], timeout_s=_ASK_TIMEOUT_S
            ) as connection:
                request = nameserver.GetClusterRequest(broker_name=self.name)
                reply = await connection.call(GET_CLUSTER, request, timeout_s=_ASK_TIMEOUT_S)
        except TernError as error:
            logger.debug("nameserver gave no answer nameserver=%s err=%s", address, error)
            return ()
        hosts = [address.host, *(each.host for each in self._nameservers)]
        return self._members_of(reply.brokers, hosts)

    def _members_of(
        self, brokers: Iterable[common.BrokerData], hosts: Iterable[str]
    ) -> list[BrokerMember]:
        # The endpoints of a member count even if its registered epoch is impossible.
        return [
            replace(each, epoch=0) if doubt_of(each.epoch) else each
            for each in members_of(brokers, cluster=self.cluster, name=self.name, hosts=hosts)
        ]


def members_of(
    brokers: Iterable[common.BrokerData], *, cluster: str, name: str, hosts: Iterable[str]
) -> Sequence[BrokerMember]:
    """Return the members of a broker name, ready to be dialled.

    Args:
        brokers: Members as a NameServer reports them.
        cluster: Cluster of the members; others are left out.
        name: Broker name of the members; others are left out.
        hosts: Hosts of NameServers that replace "*" in endpoints, the most probable first.
    """
    found: list[BrokerMember] = []
    for data in brokers:
        if (data.cluster, data.broker_name) != (cluster, name):
            continue
        for member in broker_data_from_pb(data).members:
            legal = [each for each in member.endpoints if each.is_legal_endpoint]
            endpoints = dict.fromkeys(
                each
                for host in dict.fromkeys(hosts)
                for each in resolve_addresses(legal, nameserver_host=host)
            )
            found.append(replace(member, endpoints=tuple(endpoints)))
    return found


def merged(members: Iterable[BrokerMember]) -> dict[int, BrokerMember]:
    """Return each member once, with the endpoints of all reports and the highest epoch."""
    found: dict[int, BrokerMember] = {}
    for member in members:
        known = found.get(member.broker_id)
        if known is None:
            found[member.broker_id] = member
            continue
        newest, other = (member, known) if member.epoch > known.epoch else (known, member)
        endpoints = tuple(dict.fromkeys((*newest.endpoints, *other.endpoints)))
        found[member.broker_id] = replace(newest, endpoints=endpoints)
    return found


def with_remembered(
    reported: Mapping[int, BrokerMember], remembered: Iterable[BrokerMember]
) -> list[BrokerMember]:
    """Return the reported members and the other remembered ones, by id.

    A remembered member with the endpoints of a reported one is that member under an older id.
    """
    places = {frozenset(member.endpoints) for member in reported.values()}
    known = {
        member.broker_id: member
        for member in remembered
        if frozenset(member.endpoints) not in places
    }
    return sorted((known | dict(reported)).values(), key=lambda each: each.broker_id)
