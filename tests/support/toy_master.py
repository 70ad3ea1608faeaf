"""A master as a slave sees it, that says what a test wants; and a slave without the rest of it.

async with MemoryNetwork(random) as network, toy_slave(network) as slave:
    async with toy_master(network) as master:
        ...
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from ternmq_broker.config import BrokerRole
from ternmq_broker.replication.protocol import epochs_to_pb
from ternmq_broker.replication.role.epoch_poll import EpochPoll
from ternmq_broker.replication.role.member_discovery import MemberDiscovery
from ternmq_broker.replication.role.membership import Membership
from ternmq_broker.replication.role.replication_state import ReplicationState
from ternmq_broker.replication.slave.follower import LogFollower
from ternmq_broker.state.epochs import Epoch, Epochs
from ternmq_broker.state.replication_record import LogCut
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_broker.storage.loop import StoreLoop
from ternmq_model.address import Address
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import BrokerMember
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Call, Handler, Identity, ServerStream, stream
from ternmq_remoting.service_methods import FOLLOW
from ternmq_runtime.service import Job, JobRunner, OwnedTasks
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock, virtual_environment
from tests.support.records import batch_of, record
from tests.support.replicas import next_slice
from tests.support.stores import ROOT, SMALL, append, open_store, settle

CLUSTER: Final = "DefaultCluster"
NAME: Final = "a"
MASTER: Final = Address("m", 10_911)

FollowServer = ServerStream[replication.FollowRequest, replication.FollowReply]


def epochs_of(*pairs: tuple[int, int]) -> Epochs:
    """Return epochs from (number, start)."""
    return tuple(Epoch(number, PhysicalOffset(start)) for number, start in pairs)


FIRST_EPOCH: Final = epochs_of((1, 0))


@dataclass
class ToyMaster:
    """Serves Follow over a real store. A test may change what it says at any time.

    Attributes:
        says: What every accepted slave is told, instead of what is true; read with each Follow.
        probes: Ranges to ask about first.
        is_mute: Say nothing after `accepted`.
        pieces: What was sent besides, in place of the log.
    """

    store: MessageStore
    files: MemoryFileSystem
    epochs: Epochs = FIRST_EPOCH
    store_id: str = "store"
    says: replication.FollowAccepted | None = None
    probes: Sequence[tuple[int, int]] = ()
    is_mute: bool = False
    wild: Sequence[replication.LogPiece] = ()
    confirmed: int | None = None
    hellos: list[replication.FollowHello] = field(default_factory=list[replication.FollowHello])
    probed: list[replication.FollowProbed] = field(default_factory=list[replication.FollowProbed])
    acks: list[replication.FollowAck] = field(default_factory=list[replication.FollowAck])

    def write(self, count: int = 1, *, topic: str = "A", body: bytes = b"x" * 100) -> None:
        """Append messages, and bring them to the disk."""
        for _ in range(count):
            append(self.store, batch_of(record(topic, 0, body)))
        settle(self.store)

    async def follow(self, stream: FollowServer, call: Call) -> None:
        """Serve one slave."""
        request = await stream.read()
        assert request is not None
        self.hellos.append(request.hello)
        for start, end in self.probes:
            probe = replication.FollowProbe(start=start, end=end)
            await stream.write(replication.FollowReply(probe=probe))
            request = await stream.read()
            if request is None:
                return
            self.probed.append(request.probed)
        accepted = self.says or replication.FollowAccepted(
            store_id=self.store_id,
            epochs=epochs_to_pb(self.epochs),
            start=self.hellos[-1].log_end,
            log_file_bytes=self.store.log_file_bytes,
            master_role="sync_master",
            in_sync_replicas=2,
        )
        await stream.write(replication.FollowReply(accepted=accepted))
        if accepted.status.code or accepted.HasField("cut"):
            return
        async with OwnedTasks() as tasks:
            feeding = tasks.spawn(self._feed(stream, self.hellos[-1].log_end), "feed")
            while (request := await stream.read()) is not None:
                self.acks.append(request.ack)
            feeding.cancel()

    async def _feed(self, stream: FollowServer, at: int) -> None:
        for piece in self.wild:
            await stream.write(replication.FollowReply(piece=piece))
        heard = 0
        while True:
            found = None if self.is_mute else next_slice(self.store, at)
            if found is None:
                await asyncio.sleep(0.01)
                heard += 1
                if self.is_mute or heard % 10:
                    continue
            piece = self.standing()
            if found is not None:
                piece.start, piece.data = found.start, found.data
                piece.is_checksummed, at = found.is_checksummed, found.end
            await stream.write(replication.FollowReply(piece=piece))

    def standing(self) -> replication.LogPiece:
        """Return a piece without bytes."""
        confirmed = self.store.max_physical if self.confirmed is None else self.confirmed
        return replication.LogPiece(
            epoch=self.epochs[-1].number,
            confirm_offset=confirmed,
            log_start=self.store.min_physical,
            log_end=self.store.max_physical,
        )


@asynccontextmanager
async def toy_master(
    network: MemoryNetwork,
    master: ToyMaster | None = None,
    *,
    handlers: Sequence[Handler] = (),
) -> AsyncGenerator[ToyMaster]:
    """Serve as the master of the name while the block runs."""
    if master is None:
        files = MemoryFileSystem()
        master = ToyMaster(open_store(files), files)
    identity = Identity(CLUSTER, NAME, 0, master.epochs[-1].number)
    served = [stream(FOLLOW, master.follow), *handlers]
    async with network.host("m").serve(served, MASTER, identity=identity):
        yield master


@dataclass
class ToySlave:
    """A slave's store and what follows for it."""

    store: MessageStore
    files: MemoryFileSystem
    state: ReplicationState
    follower: LogFollower
    env: Environment
    cuts: list[tuple[LogCut, int]]
    """Cuts that its log needs, with the epochs of the masters that told them."""


@asynccontextmanager
async def toy_slave(
    network: MemoryNetwork,
    files: MemoryFileSystem | None = None,
    *,
    flush_mode: FlushMode = FlushMode.SYNC,
    sync_s: float = 0.0,
    config: StoreConfig = SMALL,
    more_jobs: Sequence[Job] = (),
) -> AsyncGenerator[ToySlave]:
    """Follow while the block runs; then close the store."""
    files = MemoryFileSystem() if files is None else files
    clock = VirtualClock()
    env = virtual_environment(network.host("s"), Random(1), lambda: sync_s, clock=clock)
    state = await ReplicationState.load(ROOT, files, env.blocking)
    serve_to = state.record.confirmed
    store = MessageStore.open(ROOT, config, flush_mode, files, clock, serve_to=serve_to)
    loop = StoreLoop(store, Confirmations(), clock, env.blocking, on_arrivals=lambda _: None)
    cuts: list[tuple[LogCut, int]] = []
    discovery = MemberDiscovery(
        env,
        cluster=CLUSTER,
        name=NAME,
        nameservers=(),
        remembered=lambda: [BrokerMember(0, (MASTER,))],
        remember=state.remember,
    )
    member = Membership(
        identity=Identity(CLUSTER, NAME, 1, 0),
        is_slave=True,
        slave_id=1,
        role=BrokerRole.SYNC_MASTER,
        replicas_needed=2,
        incarnation="i",
        state=state,
        discovery=discovery,
        epoch_poll=EpochPoll(
            env, cluster=CLUSTER, name=NAME, nameservers=(), members=discovery.members
        ),
        note_epoch=lambda _epoch, _who: None,
        end=lambda _reason: None,
        cut=lambda _cut: None,
    )
    follower = LogFollower(
        member,
        env,
        store,
        loop,
        flush_mode=flush_mode,
        on_cut=lambda cut, epoch: cuts.append((cut, epoch)),
        is_term_over=lambda _epoch: False,
    )
    loop.on_safe = follower.safe_moved
    async with AsyncExitStack() as stack:
        for jobs in (loop.jobs(), (*follower.jobs(), *more_jobs)):
            await stack.enter_async_context(JobRunner(*jobs))
        stack.push_async_callback(follower.leave)
        yield ToySlave(store, files, state, follower, env, cuts)
    await follower.keep_confirmed()
    await state.save()
    store.close()
