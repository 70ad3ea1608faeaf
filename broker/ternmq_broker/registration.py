"""Telling every NameServer who this broker is and which topics it has.

Source: RocketMQ `BrokerOuterAPI.registerBrokerAll`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ternmq_broker.state.topics import TopicTable
from ternmq_model.address import Address
from ternmq_model.data_version import DataVersion
from ternmq_model.epochs import doubt_of
from ternmq_model.errors import ClosedError, RefusedError, TernError, TransportError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import MASTER_ID
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.converters import (
    data_version_to_pb,
    endpoint_to_pb,
    endpoints_from_pb,
    error_of,
)
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection, Identity
from ternmq_remoting.service_methods import GET_CLUSTER, REGISTER_BROKER, UNREGISTER_BROKER
from ternmq_runtime.service import Job

logger = logging.getLogger(__name__)

_CALL_TIMEOUT_S: Final = 6.0
_NOTHING: Final = DataVersion(-1, -1)
_RETRY_PAUSE_S: Final = 0.25
"""Between two attempts: routes are to be there again within a second or so of a NameServer that
returns."""

_FULL_PAUSE_S: Final = 5.0
"""Between two attempts at a NameServer that has no room: each tells every topic."""

_LOOK_PAUSE_S: Final = 1.0
"""Between two looks whether a registration still holds."""

_TOLD_WITHIN_S: Final = 2.0
"""For an answer to whoever changed topics: clients give up after 3 s."""

_REGISTER: Final = replace(
    REGISTER_BROKER, answers=frozenset({0, int(ResponseCode.ILLEGAL_OPERATION)})
)
"""A refusal tells the highest epoch, too."""

_LEAVE_TIMEOUT_S: Final = 1.0
"""For what still runs when the broker leaves, and once more for the goodbye."""


@dataclass(frozen=True, slots=True)
class Registrant:
    """A broker that registers."""

    identity: Identity
    endpoints: tuple[Address, ...]
    incarnation: str
    """Random per process: an unregistration counts for this registration alone."""


class NameServerRegistration:
    """Keeps one NameServer told. Owned by `Registrar`; `step` is its one user of the connection.

    Between registrations it asks every second whether the NameServer still knows this broker: one
    that was restarted does not. Another process under the same name and id is warned of, and goes
    on registering as this one does: which of the two is wanted, only an operator knows.
    """

    def __init__(
        self,
        address: Address,
        env: Environment,
        topics: TopicTable,
        registrant: Registrant,
        *,
        interval_ms: int,
        note_settled: Callable[[], None],
        heard_of: Callable[[int, str], None],
        told_members: Callable[[Iterable[common.BrokerData], Address], None],
        registered: Callable[[], None],
    ) -> None:
        self.address = address
        self.job: Final = Job(name=f"register-{address}", interval_s=self.pause_s, step=self.step)
        self._env = env
        self._topics = topics
        self._registrant = registrant
        self._interval_ms = interval_ms
        self._note_settled = note_settled
        self._heard_of = heard_of
        self._told_members = told_members
        self._registered = registered
        self._is_registered = False
        """It was, once."""
        self._connection: Connection | None = None
        self._told = _NOTHING
        self._told_at_ms = 0
        self._tried = _NOTHING
        """Version of the topics that were told last, taken or not."""

        self._failure: TernError | None = None
        """Why the last attempt failed; None = it did not."""
        self._rival: tuple[Address, ...] = ()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_leaving = False

    @property
    def is_current(self) -> bool:
        """The NameServer has the topics as they are now."""
        return self._told == self._topics.version

    def has_told(self, version: DataVersion) -> bool:
        """Return whether the NameServer has the topics of that version, or of a later one."""
        return self._told >= version or self.is_current  # a slave's table may be an older one

    def refusal_of(self, version: DataVersion) -> RefusedError | None:
        """Return why the NameServer refuses the topics of that version, or of a later one."""
        failure = self._failure
        is_tried = self._tried >= version or self._tried == self._topics.version
        return failure if is_tried and isinstance(failure, RefusedError) else None

    def is_settled(self, version: DataVersion) -> bool:
        """Return whether the NameServer has the topics, refuses them, or gives no answer."""
        is_away = self._failure is not None and not isinstance(self._failure, RefusedError)
        return is_away or self.has_told(version) or self.refusal_of(version) is not None

    async def step(self) -> bool:
        """Register if it is time, else ask whether it still holds; pause after a failure."""
        if self._is_leaving:
            return False
        self._idle.clear()
        try:
            return await self._keep_told()
        finally:
            self._idle.set()

    def pause_s(self) -> float:
        """Return how long to pause after a step."""
        if self._failure is None:
            return _LOOK_PAUSE_S
        is_full = _code_of(self._failure) == ResponseCode.FLOW_CONTROL
        return _FULL_PAUSE_S if is_full else _RETRY_PAUSE_S

    async def _keep_told(self) -> bool:
        try:
            due_ms = self._told_at_ms + self._interval_ms
            if self.is_current and self._env.clock.monotonic_ms() < due_ms:
                if await self._is_known():
                    return False
                logger.info("registration was lost nameserver=%s", self.address)
            await self._register()
        except TernError as error:
            self._told = _NOTHING
            before, self._failure = self._failure, error
            if isinstance(error, TransportError):
                await self._hang_up()
            self._note_settled()
            is_new = before is None or _code_of(before) != _code_of(error)
            if is_new and not self._is_leaving:
                logger.warning("not registered nameserver=%s error=%s", self.address, error)
            return False
        if self._failure is not None:
            self._failure = None
            logger.info("registered again nameserver=%s", self.address)
        self._note_settled()
        return not self.is_current

    async def _connected(self) -> Connection:
        if self._connection is None:
            connection = await self._env.network.connect([self.address])
            if self._is_leaving:
                await connection.close()
                raise ClosedError(f"{self.address}: the broker leaves")
            self._connection = connection
        return self._connection

    async def _hang_up(self) -> None:
        """Dial anew next time: a connection that broke would first wait before it tries again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _register(self) -> None:
        connection = await self._connected()
        version = self._tried = self._topics.version
        request = register_request(self._registrant, self._topics)
        reply = await connection.call(_REGISTER, request, timeout_s=_CALL_TIMEOUT_S)
        if reply.highest_epoch:
            self._heard_of(reply.highest_epoch, f"NameServer {self.address}")
        if reply.status.code:
            raise error_of(reply.status, str(self.address))
        self._told = version
        self._told_at_ms = self._env.clock.monotonic_ms()
        if not self._is_registered:
            self._is_registered = True
            self._registered()

    async def _is_known(self) -> bool:
        connection = await self._connected()
        identity = self._registrant.identity
        request = nameserver.GetClusterRequest(broker_name=identity.name)
        reply = await connection.call(GET_CLUSTER, request, timeout_s=_CALL_TIMEOUT_S)
        highest = highest_epoch(reply.brokers, identity)
        self._heard_of(highest, f"NameServer {self.address}")
        self._told_members(reply.brokers, self.address)
        is_deposed = highest > identity.epoch and not doubt_of(highest)
        if identity.broker_id == MASTER_ID and is_deposed:
            return True  # there is another master, as it should be: this one is about to leave
        endpoints = registered_endpoints(reply.brokers, identity)
        if endpoints is None:
            return False
        self._note_rival(endpoints)
        return True

    def _note_rival(self, endpoints: tuple[Address, ...]) -> None:
        """Warn, once per change, when others' endpoints are registered in place of our own."""
        own = self._registrant.endpoints
        rival = () if sorted(endpoints, key=str) == sorted(own, key=str) else endpoints
        # Two that register in turn would else be warned of with every turn.
        if not rival or rival == self._rival:
            return
        self._rival = rival
        identity = self._registrant.identity
        logger.warning(
            "another process is registered as broker name=%s id=%s address=%s own_address=%s"
            " nameserver=%s",
            identity.name,
            identity.broker_id,
            ",".join(map(str, rival)),
            ",".join(map(str, own)),
            self.address,
        )

    async def rest(self) -> None:
        """Register no more; what is registered stays until `leave`, or until it expires.

        A registration that is under way is waited for; one that takes too long is cut off.
        """
        await self._settle()
        if not self._idle.is_set():
            await self._hang_up()

    async def _settle(self) -> None:
        self._is_leaving = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await self._idle.wait()

    async def leave(self) -> None:
        """Withdraw the registration, if there may be one; then hang up.

        One that refuses what the broker is now keeps what it was before, and is told, too.

        A registration that is under way is waited for, so that the goodbye comes after it; one
        that takes too long is cut off.
        """
        await self._settle()
        connection, self._connection = self._connection, None
        if connection is None and not self._is_registered:
            return
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                if connection is None:  # hung up by `rest`, or the NameServer was away
                    connection = await self._env.network.connect([self.address])
                await self._withdraw(connection)
        except (TernError, TimeoutError) as error:
            reason = str(error) or f"no answer within {_LEAVE_TIMEOUT_S:g} s"
            logger.warning("not unregistered nameserver=%s error=%s", self.address, reason)
        finally:
            if connection is not None:
                await connection.close()

    async def _withdraw(self, connection: Connection) -> None:
        identity = self._registrant.identity
        request = nameserver.UnregisterBrokerRequest(
            cluster=identity.cluster,
            broker_name=identity.name,
            broker_id=identity.broker_id,
            incarnation=self._registrant.incarnation,
        )
        await connection.call(UNREGISTER_BROKER, request, timeout_s=_LEAVE_TIMEOUT_S)


class Registrar:
    """Keeps every NameServer told. Owned by the broker's loop.

    Args:
        env: Network, clock.
        topics: What to tell.
        nameservers: Whom.
        interval_ms: Pause between two registrations when nothing changes.
        heard_of: Told every epoch of the broker's name that a NameServer tells, and who told it.
        told_members: Told the broker's name with its members as a NameServer tells them, and where
            that is.
        registered: Called whenever a NameServer has taken its first registration.
    """

    def __init__(
        self,
        env: Environment,
        topics: TopicTable,
        *,
        nameservers: Sequence[Address],
        interval_ms: int,
        heard_of: Callable[[int, str], None] = lambda _epoch, _who: None,
        told_members: Callable[[Iterable[common.BrokerData], Address], None] = lambda _data, _at: (
            None
        ),
        registered: Callable[[], None] = lambda: None,
    ) -> None:
        self._env = env
        self._topics = topics
        self._heard_of = heard_of
        self._told_members = told_members
        self._registered = registered
        self._nameservers = nameservers
        self._interval_ms = interval_ms
        self._registrations: Sequence[NameServerRegistration] = ()
        self._settled = asyncio.Event()

    def jobs(self, registrant: Registrant) -> tuple[Job, ...]:
        """Return one job per NameServer, which registers `registrant` and keeps it registered."""
        self._registrations = [
            NameServerRegistration(
                address,
                self._env,
                self._topics,
                registrant,
                interval_ms=self._interval_ms,
                note_settled=self._note_settled,
                heard_of=self._heard_of,
                told_members=self._told_members,
                registered=self._registered,
            )
            for address in self._nameservers
        ]
        return tuple(each.job for each in self._registrations)

    def changed(self) -> None:
        """Tell every NameServer of a change now, or after the registration that is under way."""
        for each in self._registrations:
            each.job.wake()

    async def told(self, version: DataVersion | None = None) -> bool:
        """Return when all that answer know, or refuse, the topics of that version or a later one.

        Args:
            version: That of the table with the change; None = as it is now. Changes that come later
                are not waited for: there may always be one more.

        Returns:
            Whether all that are not known to be away do. One that answers too slowly for that is
            told all the same.
        """
        wanted = version or self._topics.version
        try:
            async with asyncio.timeout(_TOLD_WITHIN_S):
                while not all(each.is_settled(wanted) for each in self._registrations):
                    settled = self._settled
                    await settled.wait()
        except TimeoutError:
            return False
        return True

    def check_taken(self, version: DataVersion, what: str) -> None:
        """Refuse, for a NameServer that refuses the topics of that version, or of a later one.

        Its routes stay as they were until it has room, or until the topics are such as it takes.

        Args:
            version: That of the table with a change, which is saved.
            what: What was changed, for the remark.

        Raises:
            RefusedError: Has the NameServer's code, and names it.
        """
        for each in self._registrations:
            if error := each.refusal_of(version):
                remark = (
                    f"{what}: it is done and kept at this broker, but NameServer {each.address}"
                )
                raise refusal(error.code, f"{remark} refuses to register it: {error.remark}")

    def _note_settled(self) -> None:
        self._settled.set()
        self._settled = asyncio.Event()

    async def leave(self) -> None:
        """Withdraw every registration, side by side, within two seconds.

        The jobs register no more from then on, and what they wait for ends.
        """
        await asyncio.gather(*(each.leave() for each in self._registrations))

    async def rest(self) -> None:
        """Register no more, but let every registration stand until `leave`: within a second."""
        await asyncio.gather(*(each.rest() for each in self._registrations))


def _code_of(error: TernError) -> int:
    """Return the response code of a refusal, 0 of a failure of the network."""
    return error.code if isinstance(error, RefusedError) else 0


def registered_endpoints(
    brokers: Iterable[common.BrokerData], identity: Identity
) -> tuple[Address, ...] | None:
    """Return where the broker of our name and id is said to be, None when there is none."""
    for data in brokers:
        if (data.cluster, data.broker_name) == (identity.cluster, identity.name):
            for member in data.members:
                if member.broker_id == identity.broker_id:
                    return endpoints_from_pb(member.endpoints)
    return None


def highest_epoch(brokers: Iterable[common.BrokerData], identity: Identity) -> int:
    """Return the highest epoch that a member of our name has registered; 0 when there is none."""
    return max(
        (
            member.epoch
            for data in brokers
            if (data.cluster, data.broker_name) == (identity.cluster, identity.name)
            for member in data.members
        ),
        default=0,
    )


def register_request(
    registrant: Registrant, topics: TopicTable
) -> nameserver.RegisterBrokerRequest:
    """Return the request that tells everything."""
    identity = registrant.identity
    return nameserver.RegisterBrokerRequest(
        cluster=identity.cluster,
        broker_name=identity.name,
        broker_id=identity.broker_id,
        endpoints=map(endpoint_to_pb, registrant.endpoints),
        data_version=data_version_to_pb(topics.version),
        topics=topics.registered(),
        epoch=identity.epoch,
        incarnation=registrant.incarnation,
    )
