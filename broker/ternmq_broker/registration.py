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

_WAIT_S: Final = 2.0
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
    """Registration at one NameServer. Owned by `Registrar`; `step` alone uses the connection.

    Between registrations a step asks every second whether the NameServer still knows this broker: a
    restarted NameServer does not. A warning names another process under the same name and id. Both
    go on registering: only an operator knows which of the two is right.
    """

    def __init__(
        self,
        address: Address,
        registrant: Registrant,
        registrar: "Registrar",
    ) -> None:
        self.address = address
        self.job: Final = Job(name=f"register-{address}", interval_s=self.pause_s, step=self.step)
        self._env = registrar.env
        self._topics = registrar.topics
        self._registrant = registrant
        self._registrar = registrar
        self._was_registered = False
        self._connection: Connection | None = None
        self._registered = _NOTHING
        self._registered_at_ms = 0
        self._tried = _NOTHING
        """Version of the topics in the last request, accepted or not."""

        self._failure: TernError | None = None
        """Error of the last attempt; None after a success."""
        self._rival: tuple[Address, ...] = ()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_leaving = False

    @property
    def is_current(self) -> bool:
        """The NameServer has the topics as they are now."""
        return self._registered == self._topics.version

    def has_registered(self, version: DataVersion) -> bool:
        """Return whether the NameServer has the topics of that version, or of a later one."""
        return self._registered >= version or self.is_current  # a slave's table may be an older one

    def refusal_of(self, version: DataVersion) -> RefusedError | None:
        """Return why the NameServer refuses the topics of that version, or of a later one."""
        failure = self._failure
        is_tried = self._tried >= version or self._tried == self._topics.version
        return failure if is_tried and isinstance(failure, RefusedError) else None

    def is_settled(self, version: DataVersion) -> bool:
        """Return whether the NameServer has the topics, refuses them, or gives no answer."""
        is_away = self._failure is not None and not isinstance(self._failure, RefusedError)
        return is_away or self.has_registered(version) or self.refusal_of(version) is not None

    async def step(self) -> bool:
        """Register if it is time, else ask whether it still holds; pause after a failure."""
        if self._is_leaving:
            return False
        self._idle.clear()
        try:
            return await self._keep_registered()
        finally:
            self._idle.set()

    def pause_s(self) -> float:
        """Return how long to pause after a step."""
        if self._failure is None:
            return _LOOK_PAUSE_S
        is_full = _code_of(self._failure) == ResponseCode.FLOW_CONTROL
        return _FULL_PAUSE_S if is_full else _RETRY_PAUSE_S

    async def _keep_registered(self) -> bool:
        try:
            due_ms = self._registered_at_ms + self._registrar.interval_ms
            if self.is_current and self._env.clock.monotonic_ms() < due_ms:
                if await self._is_known():
                    return False
                logger.info("registration was lost nameserver=%s", self.address)
            await self._register()
        except TernError as error:
            self._registered = _NOTHING
            before, self._failure = self._failure, error
            if isinstance(error, TransportError):
                await self._hang_up()
            self._registrar.note_settled()
            is_new = before is None or _code_of(before) != _code_of(error)
            if is_new and not self._is_leaving:
                logger.warning("not registered nameserver=%s error=%s", self.address, error)
            return False
        if self._failure is not None:
            self._failure = None
            logger.info("registered again nameserver=%s", self.address)
        self._registrar.note_settled()
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
            self._registrar.on_epoch(reply.highest_epoch, f"NameServer {self.address}")
        if reply.status.code:
            raise error_of(reply.status, str(self.address))
        self._registered = version
        self._registered_at_ms = self._env.clock.monotonic_ms()
        if not self._was_registered:
            self._was_registered = True
            self._registrar.on_registered()

    async def _is_known(self) -> bool:
        connection = await self._connected()
        identity = self._registrant.identity
        request = nameserver.GetClusterRequest(broker_name=identity.name)
        reply = await connection.call(GET_CLUSTER, request, timeout_s=_CALL_TIMEOUT_S)
        members = members_of(reply.brokers, identity)
        highest = max((member.epoch for member in members), default=0)
        self._registrar.on_epoch(highest, f"NameServer {self.address}")
        self._registrar.on_members(reply.brokers, self.address)
        is_deposed = highest > identity.epoch and not doubt_of(highest)
        if identity.broker_id == MASTER_ID and is_deposed:
            return True  # there is another master, as it should be: this one is about to leave
        own = [member for member in members if member.broker_id == identity.broker_id]
        if own:
            self._note_rival(endpoints_from_pb(own[0].endpoints))
        return bool(own)

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
        if connection is None and not self._was_registered:
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
    """Registrations of a broker at all NameServers. Owned by the broker's loop.

    Args:
        env: Network and clock.
        topics: The registered topics.
        nameservers: Addresses of the NameServers.
        interval_ms: Pause between two registrations without a change.
        on_epoch: Called with every epoch of the broker's name in a reply, and the name of its
            sender.
        on_members: Called with the members of the broker's name in a reply, and the address of the
            NameServer.
        on_registered: Called whenever a NameServer has accepted its first registration.
    """

    def __init__(
        self,
        env: Environment,
        topics: TopicTable,
        *,
        nameservers: Sequence[Address],
        interval_ms: int,
        on_epoch: Callable[[int, str], None],
        on_members: Callable[[Iterable[common.BrokerData], Address], None],
        on_registered: Callable[[], None],
    ) -> None:
        self.env = env
        self.topics = topics
        self.on_epoch = on_epoch
        self.on_members = on_members
        self.on_registered = on_registered
        self.interval_ms = interval_ms
        self._nameservers = nameservers
        self._registrations: Sequence[NameServerRegistration] = ()
        self._settled = asyncio.Event()

    def jobs(self, registrant: Registrant) -> tuple[Job, ...]:
        """Return one job per NameServer, which registers `registrant` and keeps it registered."""
        self._registrations = [
            NameServerRegistration(address, registrant, self) for address in self._nameservers
        ]
        return tuple(each.job for each in self._registrations)

    def changed(self) -> None:
        """Register a change everywhere now, or after the registration that is under way."""
        for each in self._registrations:
            each.job.wake()

    async def wait_registered(self, version: DataVersion | None = None) -> bool:
        """Wait until the NameServers that answer have accepted or refused a version of the topics.

        A later version counts as well.

        Args:
            version: Version of the table with the change; None = the present one. Later changes are
                not awaited: there may always be one more.

        Returns:
            False when a NameServer answered too slowly; its registration goes on.
        """
        awaited = version or self.topics.version
        try:
            async with asyncio.timeout(_WAIT_S):
                while not all(each.is_settled(awaited) for each in self._registrations):
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
            what: Name of the change, for the remark.

        Raises:
            RefusedError: Has the NameServer's code, and names it.
        """
        for each in self._registrations:
            if error := each.refusal_of(version):
                remark = (
                    f"{what}: it is done and kept at this broker, but NameServer {each.address}"
                )
                raise refusal(error.code, f"{remark} refuses to register it: {error.remark}")

    def note_settled(self) -> None:
        """Wake the waiters for the outcome of a registration."""
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


def members_of(
    brokers: Iterable[common.BrokerData], identity: Identity
) -> Sequence[common.BrokerMember]:
    """Return the registered members of the broker's own name."""
    own = (identity.cluster, identity.name)
    return [
        member
        for data in brokers
        if (data.cluster, data.broker_name) == own
        for member in data.members
    ]


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
