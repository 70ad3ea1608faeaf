"""Registration of a broker and its topics at every NameServer.

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
from ternmq_model.response_code import KNOWS_NO_USERS, ResponseCode
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
from ternmq_runtime.timers import Wait

logger = logging.getLogger(__name__)

_CALL_TIMEOUT_S: Final = 6.0
_NOTHING: Final = DataVersion(-1, -1)
_RETRY_PAUSE_S: Final = 0.25
"""Pause between two attempts, so that routes are back about a second after a NameServer returns."""

_FULL_PAUSE_S: Final = 5.0
"""Pause between two attempts at a full NameServer: each attempt sends all topics."""

_CHECK_PAUSE_S: Final = 1.0
"""Pause between two checks of a registration."""

_WAIT_S: Final = 2.0
"""Longest wait of a change of topics for NameServers: clients give up after 3 s."""

_REGISTER: Final = replace(
    REGISTER_BROKER, answers=frozenset({0, int(ResponseCode.ILLEGAL_OPERATION)})
)
"""A refused registration also answers with the highest epoch."""

_LEAVE_TIMEOUT_S: Final = 1.0
"""Limit for a registration under way when the broker is leaving, and again for the withdrawal."""


@dataclass(frozen=True, slots=True)
class Registrant:
    """A broker that registers."""

    identity: Identity
    endpoints: tuple[Address, ...]
    incarnation: str
    """Random text of the process: an unregistration removes this registration alone."""


class NameServerRegistration:
    """Registration at one NameServer. Owned by `Registrar`; `step` alone uses the connection.

    Between registrations a step checks every second that the NameServer still knows this broker,
    because a restarted NameServer does not. A warning names another process with the same name and
    id. Both continue to register: only an operator knows the right one.
    """

    def __init__(
        self,
        address: Address,
        registrant: Registrant,
        registrar: "Registrar",
    ) -> None:
        self.address = address
        self.job: Final = Job(
            name=f"register-{address}",
            interval_s=self.pause_s,
            step=self.step,
            wait=Wait.HEARTBEAT,
        )
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
        """True when the NameServer has the present topics."""
        return self._registered == self._topics.version

    def has_registered(self, version: DataVersion) -> bool:
        """Return whether the NameServer has the topics of that version, or of a later one."""
        return self._registered >= version or self.is_current  # a slave's table may be an older one

    def refusal_of(self, version: DataVersion) -> RefusedError | None:
        """Return the refusal of the topics of that version, or of a later one; None without one."""
        failure = self._failure
        is_tried = self._tried >= version or self._tried == self._topics.version
        if not is_tried or not isinstance(failure, RefusedError) or self._is_away:
            return None
        return failure

    @property
    def _is_away(self) -> bool:
        """True when the NameServer gives no answer, or cannot answer yet."""
        return self._failure is not None and _code_of(self._failure) in (0, *KNOWS_NO_USERS)

    def is_settled(self, version: DataVersion) -> bool:
        """Return whether the NameServer has the topics, refuses them, or gives no answer."""
        return self._is_away or self.has_registered(version) or self.refusal_of(version) is not None

    async def step(self) -> bool:
        """Register if that is due, else check the registration: one step of a job."""
        if self._is_leaving:
            return False
        self._idle.clear()
        try:
            return await self._keep_registered()
        finally:
            self._idle.set()

    def pause_s(self) -> float:
        """Return the pause after a step, s."""
        if self._failure is None:
            return _CHECK_PAUSE_S
        is_full = _code_of(self._failure) == ResponseCode.FLOW_CONTROL
        return _FULL_PAUSE_S if is_full else _RETRY_PAUSE_S

    async def _keep_registered(self) -> bool:
        try:
            due_ms = self._registered_at_ms + self._registrar.interval_ms
            if self.is_current and self._env.clock.monotonic_ms() < due_ms:
                if await self._is_known():
                    return False
                logger.info("registration lost nameserver=%s", self.address)
            await self._register()
        except TernError as error:
            self._registered = _NOTHING
            before, self._failure = self._failure, error
            if isinstance(error, TransportError):
                await self._hang_up()
            self._registrar.note_settled()
            is_new = before is None or _code_of(before) != _code_of(error)
            if is_new and not self._is_leaving:
                logger.warning("not registered nameserver=%s err=%s", self.address, error)
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
                raise ClosedError(f"{self.address}: the broker is leaving")
            self._connection = connection
        return self._connection

    async def _hang_up(self) -> None:
        """Close the connection: a broken one would wait before it reconnects."""
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
        members = own_members(reply.brokers, identity)
        highest = max((member.epoch for member in members), default=0)
        self._registrar.on_epoch(highest, f"NameServer {self.address}")
        self._registrar.on_members(reply.brokers, self.address)
        is_deposed = highest > identity.epoch and not doubt_of(highest)
        if identity.broker_id == MASTER_ID and is_deposed:
            return True  # another master has taken over, and this term is about to end
        own = [member for member in members if member.broker_id == identity.broker_id]
        if own:
            self._note_rival(endpoints_from_pb(own[0].endpoints))
        return bool(own)

    def _note_rival(self, endpoints: tuple[Address, ...]) -> None:
        """Warn once per change when endpoints of another process replace those of this broker."""
        own = self._registrant.endpoints
        rival = () if sorted(endpoints, key=str) == sorted(own, key=str) else endpoints
        # Otherwise two processes that register in turn would cause a warning in every turn.
        if not rival or rival == self._rival:
            return
        self._rival = rival
        identity = self._registrant.identity
        logger.warning(
            "another process is registered as broker broker=%s broker_id=%s address=%s"
            " own_address=%s nameserver=%s",
            identity.name,
            identity.broker_id,
            ",".join(map(str, rival)),
            ",".join(map(str, own)),
            self.address,
        )

    async def rest(self) -> None:
        """End registering. The registration stays until `leave`, or until it expires.

        A registration under way is awaited for a second, and then cut off.
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
        """Withdraw the registration, if there may be one; then close the connection.

        A NameServer that refused the newest registration may have an earlier one. A registration
        under way is awaited for a second, so that the withdrawal comes after it.
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
            logger.warning("not unregistered nameserver=%s err=%s", self.address, reason)
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
        topics: Registered topics.
        nameservers: Addresses of the NameServers.
        interval_ms: Pause between two registrations without a change.
        on_epoch: Called with each epoch of the broker name in a reply, and the name of the sender.
        on_members: Called with the members of the broker name in a reply, and the address of the
            NameServer.
        on_registered: Called when a NameServer has accepted its first registration.
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
        """Return the jobs that keep `registrant` registered, one for each NameServer."""
        self._registrations = [
            NameServerRegistration(address, registrant, self) for address in self._nameservers
        ]
        return tuple(each.job for each in self._registrations)

    def changed(self) -> None:
        """Register a change at all NameServers, after registrations under way."""
        for each in self._registrations:
            each.job.wake()

    async def wait_registered(self, version: DataVersion | None = None) -> bool:
        """Wait until all answering NameServers have accepted or refused a version of the topics.

        Args:
            version: Version of the table with the change; None = the present one. A later version
                counts as well, and is not awaited.

        Returns:
            False when a NameServer answered too slowly; its registration continues.
        """
        awaited = version or self.topics.version
        try:
            async with self.env.timers.timeout(_WAIT_S):
                while not all(each.is_settled(awaited) for each in self._registrations):
                    settled = self._settled
                    await settled.wait()
        except TimeoutError:
            return False
        return True

    def check_accepted(self, version: DataVersion, what: str) -> None:
        """Check that no NameServer refuses the topics of that version, or of a later one.

        A NameServer that refuses them keeps its old routes.

        Args:
            version: Version of the table with a change, which is saved.
            what: Name of the change, for the remark.

        Raises:
            RefusedError: A NameServer refuses the topics; has its code, and names it.
        """
        for each in self._registrations:
            if error := each.refusal_of(version):
                remark = f"{what}: this broker has saved the change, but NameServer {each.address}"
                raise refusal(error.code, f"{remark} refuses to register it: {error.remark}")

    def note_settled(self) -> None:
        """Wake the waiters for the outcome of a registration."""
        self._settled.set()
        self._settled = asyncio.Event()

    async def leave(self) -> None:
        """Withdraw every registration, concurrently, within two seconds.

        The jobs end registering, and their waits end.
        """
        await asyncio.gather(*(each.leave() for each in self._registrations))

    async def rest(self) -> None:
        """End registering within a second; registrations stay until `leave`."""
        await asyncio.gather(*(each.rest() for each in self._registrations))


def _code_of(error: TernError) -> int:
    return error.code if isinstance(error, RefusedError) else 0


def own_members(
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
    """Return the request with all topics."""
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
