"""A master's half of replication on its own, and raw streams that play its slaves."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ternmq_broker.config import BrokerConfig, BrokerRole
from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.replication.master.epoch_claims import EpochClaims
from ternmq_broker.replication.master.replicas import Replicas
from ternmq_broker.replication.master.service import FollowService
from ternmq_broker.replication.role.epoch_poll import EpochPoll, EpochPollResult
from ternmq_broker.replication.role.member_discovery import MemberDiscovery
from ternmq_broker.replication.role.membership import EndReason, Membership
from ternmq_broker.replication.role.replication_state import ReplicationState
from ternmq_broker.replication.status_service import MasterStatus, StatusService
from ternmq_broker.state.epochs import Epoch, Epochs
from ternmq_broker.state.replication_record import ReplicationRecord
from ternmq_broker.storage.admission import Admission
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_broker.storage.loop import StoreLoop
from ternmq_model.address import Address
from ternmq_model.offsets import PhysicalOffset
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import ClientStream, Connection, Identity
from ternmq_remoting.service_methods import FOLLOW, REPLICATION_STATUS
from ternmq_runtime.service import JobRunner
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock, virtual_environment
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, append

IDENTITY = Identity("DefaultCluster", "a", 0, 2)
ADDRESS = Address("m", 10_911)
EPOCHS: Epochs = (Epoch(1, PhysicalOffset(0)), Epoch(2, PhysicalOffset(0)))
OWN_ID = 7
TIMEOUT_MS = 3000
NOBODY = EpochPollResult((), ("ns:9876",))

FollowStream = ClientStream[replication.FollowReply, replication.FollowRequest]


@dataclass
class Master:
    """A store that can be followed, and what it told others."""

    network: MemoryNetwork
    store: MessageStore
    files: MemoryFileSystem
    clock: VirtualClock
    confirmations: Confirmations
    store_loop: StoreLoop
    replicas: Replicas
    admission: Admission = field(
        default_factory=lambda: Admission(bytes_max=0, bytes_per_stream_max=0)
    )
    ends: list[EndReason] = field(default_factory=list[EndReason])
    """Why its term is over."""
    sync_s: float = 0.0
    others: EpochPollResult = NOBODY
    """What NameServers and members answer."""
    asked: int = 0
    """How often they were asked."""

    async def ask(self) -> EpochPollResult:
        """Ask NameServers and members; takes a second."""
        self.asked += 1
        await asyncio.sleep(1)
        return self.others

    def append(self, *bodies: bytes) -> PhysicalOffset:
        """Store messages as senders do; return where the log ends."""
        end = append(self.store, batch_of(*(record("A", 0, body) for body in bodies))).end
        self.store_loop.appended()
        return end

    async def connect(self, host: str = "s") -> Connection:
        """Return a connection from a slave's host."""
        return await self.network.host(host).connect([ADDRESS])

    async def slave(self, broker_id: int = 1, **fields: Any) -> "Slave":
        """Open a stream and say hello; `fields` are the hello's, other than those of a new one."""
        connection = await self.connect(fields.pop("host", f"s{broker_id}"))
        slave = Slave(connection, connection.open(FOLLOW), self.replicas.epoch)
        hello = hello_of(broker_id, **fields)
        await slave.stream.write(replication.FollowRequest(hello=hello))
        return slave

    async def status(self) -> replication.ReplicationStatusReply:
        """Ask how it stands."""
        connection = await self.connect()
        request = replication.ReplicationStatusRequest()
        reply = await connection.call(REPLICATION_STATUS, request, timeout_s=5)
        await connection.close()
        return reply


def member_of(
    env: Environment,
    files: MemoryFileSystem,
    *,
    role: BrokerRole,
    in_sync_replicas: int,
    epochs: Epochs,
    end: Callable[[EndReason], None],
) -> Membership:
    """Return the membership of a master of those epochs."""
    record = ReplicationRecord(store_id="store", epochs=epochs)
    state = ReplicationState(ROOT, files, env.blocking, record)
    cluster, name = IDENTITY.cluster, IDENTITY.name
    discovery = MemberDiscovery(
        env,
        cluster=cluster,
        name=name,
        nameservers=(),
        remembered=tuple,
        remember=state.remember,
    )
    return Membership(
        identity=IDENTITY,
        is_slave=False,
        slave_id=OWN_ID,
        role=role,
        replicas_needed=in_sync_replicas,
        incarnation="master",
        state=state,
        discovery=discovery,
        epoch_poll=EpochPoll(
            env, cluster=cluster, name=name, nameservers=(), members=discovery.members
        ),
        note_epoch=lambda _epoch, _who: None,
        end=end,
        cut=lambda _cut: None,
    )


def hello_of(broker_id: int = 1, **fields: Any) -> replication.FollowHello:
    """Return what a slave with an empty log says."""
    fields.setdefault("cluster", IDENTITY.cluster)
    fields.setdefault("broker_name", IDENTITY.name)
    fields.setdefault("incarnation", f"process-{broker_id}")
    fields.setdefault("flush_mode", "sync")
    fields.setdefault("store_id", "store" if "log_end" in fields else "")
    epochs: Sequence[Epoch] = fields.pop("epochs", ())
    told = [replication.Epoch(number=number, start=start) for number, start in epochs]
    return replication.FollowHello(broker_id=broker_id, epochs=told, **fields)


class Slave:
    """One stream, and what it has been given."""

    def __init__(self, connection: Connection, stream: FollowStream, epoch: int) -> None:
        self.connection = connection
        self.stream = stream
        self.epoch = epoch
        self.log: bytearray = bytearray()
        self.confirmed = -1

    async def accepted(self) -> replication.FollowAccepted:
        """Return the next reply, which tells how it may follow."""
        reply = await self.stream.read()
        assert reply is not None
        assert reply.WhichOneof("reply") == "accepted", reply
        return reply.accepted

    async def piece(self) -> replication.LogPiece:
        """Return the next piece, which goes on where the log ends."""
        reply = await self.stream.read()
        assert reply is not None
        piece = reply.piece
        assert piece.start == len(self.log)
        assert piece.epoch == self.epoch
        assert piece.confirm_offset >= self.confirmed
        self.confirmed = piece.confirm_offset
        self.log += piece.data
        return piece

    async def take(self, end: int) -> None:
        """Read pieces until the log ends at `end`."""
        while len(self.log) < end:
            await self.piece()

    async def acknowledge(self, safe: int, **fields: Any) -> None:
        """Say that the log is safe up to there."""
        fields.setdefault("epoch", self.epoch)
        fields.setdefault("appended_offset", max(safe, len(self.log)))
        ack = replication.FollowAck(safe_offset=safe, **fields)
        await self.stream.write(replication.FollowRequest(ack=ack))

    async def keep_up(self) -> None:
        """Take and acknowledge whatever comes, until the stream ends."""
        await self.acknowledge(len(self.log))
        while True:
            await self.piece()
            await self.acknowledge(len(self.log))

    async def leave(self) -> None:
        """Go away."""
        self.stream.cancel()
        await self.connection.close()


@asynccontextmanager
async def reigning(
    *,
    role: BrokerRole = BrokerRole.SYNC_MASTER,
    in_sync_replicas: int = 2,
    flush_mode: FlushMode = FlushMode.SYNC,
    epochs: Epochs = EPOCHS,
    store_config: StoreConfig = SMALL,
    files: MemoryFileSystem | None = None,
) -> AsyncGenerator[Master]:
    """Give a master that can be followed, with a store of small files."""
    clock, files = VirtualClock(), files or MemoryFileSystem()
    async with MemoryNetwork(Random(1)) as network:
        store = MessageStore.open(ROOT, store_config, flush_mode, files, clock)
        confirmations = Confirmations()

        env = virtual_environment(network.host("m"), Random(1), lambda: master.sync_s, clock=clock)
        blocking = env.blocking
        member = member_of(
            env,
            files,
            role=role,
            in_sync_replicas=in_sync_replicas,
            epochs=epochs,
            end=lambda reason: master.ends.append(reason),
        )
        replicas = Replicas(member, store, confirmations, clock, slave_timeout_ms=TIMEOUT_MS)
        store_loop = StoreLoop(
            store,
            confirmations,
            clock,
            blocking,
            on_arrivals=lambda _arrivals: None,
            on_moved=replicas.appended,
        )
        replicas.on_confirmed = store_loop.confirmed
        master = Master(network, store, files, clock, confirmations, store_loop, replicas)
        claims = EpochClaims(replicas, lambda: master.ask())
        follow = FollowService(replicas, blocking, on_claim=claims.add, admission=master.admission)
        live = LiveSettings(BrokerConfig(), store_config)
        status = StatusService(
            member, store, flush_mode, MasterStatus(replicas, blocking, live).describe
        )
        handlers = [*follow.handlers(), *status.handlers()]
        async with (
            JobRunner(*store_loop.jobs(), claims.job),
            network.host("m").serve(handlers, ADDRESS, identity=IDENTITY),
        ):
            yield master
        store.close()


async def ended(slave: Slave) -> None:
    """Read whatever comes until the stream is over."""
    while await slave.stream.read() is not None:
        pass


async def soon(awaited: Awaitable[Any]) -> Any:
    """Return what comes without a second's wait."""
    return await asyncio.wait_for(awaited, 0.5)


async def probed(slave: Slave, log: bytes) -> replication.FollowAccepted:
    """Answer probes as one with that log, until the master has decided."""
    while True:
        reply = await slave.stream.read()
        assert reply is not None
        if reply.WhichOneof("reply") == "accepted":
            return reply.accepted
        probe = reply.probe
        crc = zlib.crc32(log[probe.start : probe.end])
        answer = replication.FollowProbed(end=probe.end, crc=crc)
        await slave.stream.write(replication.FollowRequest(probed=answer))
