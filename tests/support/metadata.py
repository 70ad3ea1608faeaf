"""Two members of a broker name with nothing but their stores and tables, one of them a slave."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, cast

from ternmq_broker.replication.tables.applier import TableApplier
from ternmq_broker.replication.tables.service import MetadataService
from ternmq_broker.replication.tables.synchronizer import (
    TableSynchronizer,
)
from ternmq_broker.state.tables import Tables, load_tables
from ternmq_broker.storage.admission import Admission
from ternmq_model.address import Address
from ternmq_model.offsets import QueueOffset
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection, Identity
from ternmq_runtime.service import JobRunner
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock
from tests.support.brokers import CONFIG
from tests.support.stores import open_store

MASTER: Final = Address("m", 10911)


@dataclass
class Member:
    """A broker's store and tables, and what happened to them."""

    env: Environment
    files: MemoryFileSystem
    store: MessageStore
    tables: Tables
    gone: list[str] = field(default_factory=list[str])
    told: int = 0

    def service(self, incarnation: str = "i") -> MetadataService:
        """Return what tells the tables to others."""
        return MetadataService(
            self.tables,
            self.store,
            self.env,
            incarnation=incarnation,
            admission=Admission(bytes_max=0, bytes_per_stream_max=0),
        )

    def commit(self, offset: int, version: int = 0, **fields: Any) -> None:
        """Commit an offset of group G in queue 0 of topic T, unless told otherwise."""
        what: dict[str, Any] = {"group": "G", "topic": "T", "queue_id": 0, **fields}
        self.tables.groups.use(what["group"], now_ms=1)
        what |= {"offset": QueueOffset(offset), "version": version, "now_ms": 1}
        self.tables.offsets.commit(**what)

    def offset(self, group: str = "G", topic: str = "T") -> tuple[int | None, int]:
        """Return what is kept of queue 0, with its version."""
        offsets = self.tables.offsets
        return offsets.query(group, topic, 0), offsets.version(group, topic, 0)

    def topics_changed(self) -> None:
        """Count it."""
        self.told += 1


class FarStore:
    """A store whose queues end beyond every committed offset."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def next_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return an offset that no group has committed."""
        return QueueOffset(1 << 60)


async def member(
    network: MemoryNetwork, host: str, files: MemoryFileSystem | None = None
) -> Member:
    """Return a member with what lies in `files`."""
    files = MemoryFileSystem() if files is None else files
    env = Environment(
        clock=VirtualClock(),
        network=network.host(host),
        random=Random(1),
        blocking=InlineBlocking(),
    )
    store = open_store(files)
    tables = await load_tables(
        replace(CONFIG, auto_create_topics=host == "m"),
        files,
        env.blocking,
        cast("MessageStore", FarStore(store)),
        now_ms=env.clock.wall_ms(),
    )
    return Member(env, files, store, tables)


@dataclass
class Pair:
    """A master whose Metadata is served, and a slave that follows it while it is connected."""

    network: MemoryNetwork
    master: Member
    slave: Member
    follower: TableSynchronizer
    connection: Connection | None = None

    async def connect(self) -> None:
        """Let the slave follow."""
        self.connection = await self.slave.env.network.connect([MASTER])


@asynccontextmanager
async def pair() -> AsyncGenerator[Pair]:
    """Let a slave follow the tables of a master while the block runs."""
    async with MemoryNetwork(Random(1)) as network:
        master, slave = await member(network, "m"), await member(network, "s")
        made: list[Pair] = []
        applier = TableApplier(
            slave.env,
            slave.store,
            slave.tables,
            no_cleaning=asyncio.Lock(),
            topics_changed=slave.topics_changed,
            topic_gone=slave.gone.append,
        )
        follower = TableSynchronizer(
            slave.env, slave.tables, applier, connection=lambda: made[0].connection
        )
        made.append(Pair(network, master, slave, follower))
        identity = Identity("C", "n", 0, 1)
        async with (
            network.host("m").serve(master.service().handlers(), MASTER, identity=identity),
            JobRunner(*follower.jobs()),
        ):
            try:
                await made[0].connect()
                yield made[0]
            finally:
                await follower.leave()


def same(both: Pair) -> bool:
    """Tell whether the slave's tables are the master's."""
    mine, theirs = both.master.tables, both.slave.tables
    return (
        mine.topics.to_dict() == theirs.topics.to_dict()
        and mine.groups.to_dict() == theirs.groups.to_dict()
        and mine.offsets.to_dict()["offsetTable"] == theirs.offsets.to_dict()["offsetTable"]
        and mine.offsets.versions.to_dict() == theirs.offsets.versions.to_dict()
        and mine.delays.to_dict() == theirs.delays.to_dict()
        and [each.expression for each in mine.filters]
        == [each.expression for each in theirs.filters]
        and mine.timer == theirs.timer
        and mine.scan_offset.offset == theirs.scan_offset.offset
    )
