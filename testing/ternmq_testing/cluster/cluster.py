"""A NameServer and brokers in this process, for tests."""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

from ternmq_broker.config import BrokerConfig
from ternmq_broker.environment import BrokerEnvironment
from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import GroupDescription
from ternmq_model.address import Address
from ternmq_model.arguments import check_seconds, check_whole, is_kind
from ternmq_model.errors import ClosedError, TernError, UsageError
from ternmq_model.names import check_topic
from ternmq_model.queue import MessageQueue
from ternmq_model.route import TopicConfig
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import ALL_TAGS
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_remoting.environment import Blocking, Environment, EnvironmentUser
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import StoreConfig
from ternmq_testing.cluster.broker_settings import (
    broker_names,
    flush_of,
    refuse_owned,
    split_settings,
)
from ternmq_testing.cluster.clients import ClientEnvironments
from ternmq_testing.cluster.factories import ClientFactories
from ternmq_testing.cluster.looking import (
    dead_letters_of,
    has_timed,
    lag_of,
    leaks_of,
    matching,
    messages_of,
    report_lines,
    unanswered_of,
    wants_none_of,
)
from ternmq_testing.cluster.members import BrokerHandle
from ternmq_testing.cluster.remote_looking import members_progress
from ternmq_testing.cluster.wires import CLIENTS, NAMESERVER, Wires, wires_of
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.cluster_time import ClusterTime
from ternmq_testing.time.durations import seconds_of

_NOT_OPEN: Final = "the cluster is not open: use it inside `async with`, or `with` if it blocks"
_NAMESERVER_PORT: Final = 9876
_BROKER_PORT: Final = 10911
_EVENTS_MAX: Final = 50
_SILENT_MS: Final = 3_600_000
_RUNS: Final = "runs"
_ANSWER_S: Final = 3.0
"""Time for the last look whether everything has settled, s."""

_STORE: Final = StoreConfig(
    commit_log_file_bytes=5 << 20,
    consume_queue_file_units=1_000,
    consume_queue_ext_file_bytes=1 << 16,
    index_slots=500,
    index_entries=2_000,
)
"""Files are small: a sync in memory copies them, and each queue has one."""


class Cluster(ClientFactories, Lifecycle):
    """A NameServer and brokers in this process: production's code on a network in memory.

        async with Cluster() as cluster, cluster.producer("orders") as producer:
            await producer.send(Message("orders", b"1"))
            await cluster.advance("3d")

    Entering returns when all brokers serve. No port is opened, and nothing is on the disk.
    Leaving ends every member.

    One event loop owns the cluster. Clients may run on other loops, in other threads.

    A subclass may give it another time, other wires and other disks.

    Args:
        brokers: Number of brokers: `broker-a`, `broker-b`, …
        flush: `async`, or `sync`: a send is answered when the disk of the broker has it.
        network: `memory`, or `grpc`: the services listen on free ports of 127.0.0.1, so that
            programs in other processes can use the cluster by its `nameserver`.
        data: Directory of all data, which a later cluster may open again; None = in memory.
        topics: Topics that exist when the cluster is open. Another one is created by its first
            message, and takes consumers that came before some seconds to find.
        seed: Seed of everything that is drawn.
        settings: Settings of every broker by their names in `BrokerConfig` and `StoreConfig`.

    Raises:
        UsageError: An argument is illegal, or there is no such setting.
        IllegalName: The name of a topic is illegal.
    """

    _look_s: ClassVar = 0.005
    """Interval between looks whether everything has settled, s."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        flush: str = "async",
        network: str = "memory",
        data: str | Path | None = None,
        topics: Iterable[str] = (),
        seed: int = 0,
        **settings: Any,
    ) -> None:
        if network not in ("memory", "grpc"):
            raise UsageError(f"network={network!r}: must be 'memory' or 'grpc'")
        if isinstance(topics, str) or not is_kind(topics, Iterable):
            raise UsageError(f"topics={topics!r}: must be names: topics=['{topics}']")
        if data is not None and not is_kind(data, str, PathLike):
            raise UsageError(f"data={data!r}: must be the path of a directory")
        refuse_owned(settings)
        self._names = broker_names(brokers)
        self._flush = flush_of(flush)
        self._network, self._data = network, None if data is None else Path(data)
        self._seed = check_whole("seed", seed, 0)
        self._broker_settings, self._store_settings = split_settings(settings)
        if network == "grpc":
            # Members in other processes have a time of their own, in which their heartbeats come.
            self._broker_settings.setdefault("silent_session_ms", _SILENT_MS)
        self._topics = [TopicConfig(check_topic(each)) for each in topics]
        self._brokers: dict[str, BrokerHandle] = {}
        self._time: ClusterTime | None = None
        self._clients: ClientEnvironments | None = None
        self._finished: dict[str, dict[MessageQueue, int]] = {}
        self.events: deque[str] = deque(maxlen=_EVENTS_MAX)

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._time is not None:
            raise ClosedError("the cluster is already open")
        stack.callback(self._forget)
        self._time = time = self._new_time()
        self._begun_s = time.now_s()
        random = Random(self._seed)
        self._wires = wires = await stack.enter_async_context(self._new_wires(time, random))

        def environment(host: str) -> Environment:
            return Environment(
                clock=time,
                timers=time.agenda(),
                network=wires.of_service(host),
                random=Random(random.getrandbits(64)),
                blocking=self._blocking_of(host),
            )

        listen = wires.listen_address(NAMESERVER, _NAMESERVER_PORT)
        config = NameServerConfig(
            listen=listen.host,
            port=listen.port,
            data=None if self._data is None else self._data / NAMESERVER,
        )
        nameserver = NameServer(config, environment(NAMESERVER))
        await stack.enter_async_context(nameserver)
        port = nameserver.address.port
        self._nameserver = Address(NAMESERVER if listen.host == "0.0.0.0" else listen.host, port)
        self._clients = ClientEnvironments(wires, time, random, lambda: self._nameserver)
        tasks = await stack.enter_async_context(OwnedTasks())
        stack.push_async_callback(self._stop)
        for name in self._names:
            listen = wires.listen_address(name, _BROKER_PORT)
            broker_config = BrokerConfig(
                data=Path("/data") if self._data is None else self._data / name,
                name=name,
                listen=listen.host,
                port=listen.port,
                hostname=name,
                store_host="127.0.0.1",
                nameservers=(str(self._nameserver),),
                flush_mode=self._flush,
            )
            broker = BrokerHandle(
                replace(broker_config, **self._broker_settings),
                replace(_STORE, **self._store_settings),
                environment(name),
                wires,
                tasks,
                self.note,
                time.note_activity,
                is_in_memory=self._data is None,
            )
            self._brokers[name] = broker
            await broker.start()
        if self._topics:
            async with self.admin() as admin:
                await admin.create_topics(self._topics)

    def _forget(self) -> None:
        self._time = self._clients = None

    def _new_time(self) -> ClusterTime:
        return ClusterTime()

    def _new_wires(self, time: ClusterTime, random: Random) -> AbstractAsyncContextManager[Wires]:
        return wires_of(self._network, time, random)

    def _blocking_of(self, host: str) -> Blocking:
        """Return what runs the blocking calls of a service."""
        return InlineBlocking()

    async def _stop(self) -> None:
        for broker in self._brokers.values():
            broker.faults.heal()
            await broker.stop(for_good=True)

    def note(self, text: str) -> None:
        """Add an event to the last ones, with the time of the cluster since its begin."""
        self.events.append(f"{self.time.now_s() - self._begun_s:.3f} s: {text}")

    @property
    def time(self) -> ClusterTime:
        """The time of the cluster."""
        if self._time is None:
            raise UsageError(_NOT_OPEN)
        return self._time

    @property
    def nameserver(self) -> str:
        """Address of the NameServer."""
        _ = self.time  # checks that it is open
        return str(self._nameserver)

    @property
    def brokers(self) -> list[BrokerHandle]:
        """All brokers, by name."""
        _ = self.time  # checks that it is open
        return list(self._brokers.values())

    def broker(self, name: str = "") -> BrokerHandle:
        """Return a broker; the first without a name."""
        first = self.brokers[0]
        if not name:
            return first
        found = self._brokers.get(name)
        if found is None:
            raise UsageError(f"no broker {name!r}: there are {', '.join(self._brokers)}")
        return found

    def environment(self, client: EnvironmentUser) -> AbstractAsyncContextManager[Environment]:
        """Return the environment of a client of this cluster, not entered: an `EnvironmentSource`.

        Raises:
            UsageError: The cluster is not open.
        """
        if self._clients is None:
            raise UsageError(_NOT_OPEN)
        return self._clients.open_for(client)

    def now(self) -> float:
        """Return the time of the cluster, Unix seconds."""
        return self.time.wall_ms() / 1000

    def freeze(self) -> None:
        """Let time pass only by `advance` from now on."""
        self.time.freeze()

    async def advance(self, by: str | float) -> None:
        """Move the time, and let all happen that happens meanwhile.

        Args:
            by: Seconds, or a text such as `3d`, `2h30m`, `10s`, `500ms`.
        """
        by_s = seconds_of(by)
        stops = await self.time.advance(by_s)
        self.note(f"time moved by {by_s:g} s, {stops} stops")

    def partition(self, one: "BrokerHandle | str", other: "BrokerHandle | str") -> None:
        """Cut two hosts off from each other: brokers, `nameserver`, `clients`."""
        hosts: list[Any] = [getattr(each, "name", each) for each in (one, other)]
        known = sorted([*(each.name for each in self.brokers), NAMESERVER, CLIENTS])
        for name, host in zip(("one", "other"), hosts, strict=True):
            if host not in known:
                raise UsageError(f"{name}={host!r} is no host: there are {', '.join(known)}")
        if hosts[0] == hosts[1]:
            raise UsageError(f"one and other are both {hosts[0]!r}: name two hosts")
        self._wires.partition(*hosts)
        self.note(f"{hosts[0]} and {hosts[1]} are cut off from each other")

    def drop_answers(self, rpc: str, *, next: int = 1) -> None:
        """Lose the next answers of an RPC at every broker: it takes effect, nobody learns of it.

        Raises:
            UsageError: Brokers have no such RPC.
        """
        check_whole("next", next, 1)
        running = [each for each in self.brokers if each.is_running]
        if not running:
            raise UsageError("no broker runs: start one, whose answers can be dropped")
        for broker in running:
            broker.faults.drop_answers(rpc, next)

    def heal(self) -> None:
        """End partitions, pauses and planned faults. Crashed brokers stay down."""
        self._wires.heal()
        for broker in self.brokers:
            broker.heal()

    @property
    def _stores(self) -> dict[str, BrokerEnvironment]:
        return {each.name: each.environment for each in self.brokers if each.is_running}

    def messages(self, topic: str) -> list[StoredMessage]:
        """Return all messages of a topic at all running brokers, oldest first.

        A message that waits for its time, and one of an open transaction, is not there yet.
        """
        return messages_of(self._stores, topic)

    def dead_letters(self, group: str) -> list[StoredMessage]:
        """Return the dead letters of a group, oldest first."""
        return dead_letters_of(self._stores, group)

    def lag(self, group: str) -> int:
        """Return the number of messages that a group has not consumed, and of retries that are due.

        What consumers have finished and not committed counts as consumed since the last `settled`.
        """
        return sum(lag_of(self._stores, group, self._finished.get(group, {})).values())

    def expect(
        self, topic: str, *, count: int | None = None, where: str = ""
    ) -> list[StoredMessage]:
        """Return the messages of a topic that match, and check their number.

        Args:
            topic: Name of the topic; `%DLQ%group` are the dead letters of a group.
            count: Expected number; None = at least one.
            where: SQL92 condition on their properties, as of a subscription.

        Raises:
            AssertionError: There are more or fewer; it lists what was found.
        """
        __tracebackhide__ = True
        return matching(topic, self.messages(topic), count, where, lambda: self._hints(topic))

    def _hints(self, topic: str) -> list[str]:
        """Return why a look may not have found all messages."""
        down = [each.name for each in self.brokers if not each.is_running]
        hints = [f"{name} does not run: its messages are not counted" for name in down]
        if has_timed(self._stores, topic, self.time.wall_ms()):
            hints.append("messages wait for their time, which `advance` moves")
        return hints

    async def settled(self, *, timeout_s: float = 10.0) -> None:
        """Wait until nothing travels and every group with members has caught up.

        Real time passes meanwhile. What waits for its time (delays, retries) is not awaited, nor
        what lies at a broker that does not run, as long as another one answers.

        Raises:
            AssertionError: The cluster did not settle within `timeout_s`; names the groups behind,
                and brokers that are down or paused.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + check_seconds("timeout_s", timeout_s, least=0)
        async with self.admin() as admin:
            while True:
                try:
                    # While time stands still, a request to a paused broker has no timeout.
                    async with asyncio.timeout_at(until_s + _ANSWER_S):
                        await self.time.quiet()
                        behind = await self._groups_behind(admin)
                except (TernError, TimeoutError) as error:
                    behind = str(error) or "no answer"
                if not behind:
                    return
                if loop.time() >= until_s:
                    away = [each for each in self._states() if not each.endswith(_RUNS)]
                    text = "; ".join([behind, *away])
                    raise AssertionError(f"not settled within {timeout_s:g} s: {text}")
                await asyncio.sleep(self._look_s)

    async def _groups_behind(self, admin: AdminClient) -> str:
        """Return the groups that have not caught up, as a text."""
        assert self._clients is not None, "the cluster is open"
        behind: list[str] = []
        late = self._clients.consumed_topics()
        """Topics whose queues a group does not have yet, as when it came before its topic."""
        for group in await admin.groups():
            described = await admin.describe_group(group)
            if not described.members:
                continue
            progress = await members_progress(admin, described)
            self._finished[group] = finished = progress.finished
            progress.find_topics(group, late)
            lags = lag_of(self._stores, group, finished)
            self._pass_unwanted(described, lags, finished)
            behind += progress.behind(group, lags)
        frozen = "; time is frozen: call `advance`" if self.time.is_still else ""
        behind += [
            f"{group} (has no queue of {topic} yet{frozen})"
            for group, topics in late.items()
            for topic in sorted(topics)
            if self.messages(topic)
        ]
        return "; ".join(behind)

    def leaks(self, check: str = "fail") -> list[str]:
        """Return what a test has left behind, as sentences.

        Args:
            check: `fail`: clients that are open, and messages that consumers which have left took
                without an answer: they were polled and not committed, or their listener never
                returned. `clients` looks for clients alone, `ignore` for nothing.

        Raises:
            UsageError: `check` is another word.
        """
        clients = self._clients
        left = [] if clients is None else clients.described()
        taken = {} if clients is None else clients.unanswered
        return leaks_of(check, left, lambda: unanswered_of(self._stores, taken))

    def _pass_unwanted(
        self,
        group: GroupDescription,
        lags: dict[MessageQueue, int],
        finished: dict[MessageQueue, int],
    ) -> None:
        """Move queues with a rest that the group filters out from `lags` to `finished`.

        Consumers learn of the end of such a rest only when a pull returns without messages.
        """
        expressions = dict(each for member in group.members for each in member.subscriptions)
        for queue, count in list(lags.items()):
            expression = expressions.get(queue.topic, ALL_TAGS)
            if wants_none_of(self._stores, group.group, queue, expression, last=count):
                del lags[queue]
                _, finished[queue] = self._stores[queue.broker_name].store.queue_range(
                    queue.topic, queue.queue_id
                )

    def report(self) -> str:
        """Return brokers, topics, lags, dead letters and the last events as a text."""
        topics: dict[str, int] = {}
        for env in self._stores.values():
            for topic, queue_id in env.store.queues():
                start, end = env.store.queue_range(topic, queue_id)
                topics[topic] = topics.get(topic, 0) + end - start
        names = {group for env in self._stores.values() for group in env.tables.offsets.groups()}
        groups = {group: (self.lag(group), self.dead_letters(group)) for group in names}
        return "\n".join([*self._states(), *report_lines(topics, groups), *self.events])

    def _states(self) -> list[str]:
        """Return what each broker does, as a sentence."""
        return [
            f"{each.name} does not run"
            if not each.is_running
            else f"{each.name} {'is paused' if each.faults.is_paused else _RUNS}"
            for each in self.brokers
        ]
