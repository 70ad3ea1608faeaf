"""Sessions of a client with its brokers, for heartbeats and for commands of brokers.

A consumer has a Session with every member that serves its topics, a producer with the masters that
it sends to. The end of the Session ends the membership: a broker drops a client at once after its
goodbye, 10 s after a broken stream, and 60 s after the last heartbeat.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol

from ternmq_client.heartbeat_data import HeartbeatData
from ternmq_client.retry_policy import RetryPolicy
from ternmq_model.errors import (
    ClosedError,
    RefusedError,
    RequestTimedOut,
    TernError,
    TransportError,
    Unreachable,
    refusal,
)
from ternmq_model.route import MASTER_ID
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import ClientStream, Connection
from ternmq_remoting.service_methods import SESSION
from ternmq_runtime.service import OwnedTasks
from ternmq_runtime.timers import Wait

logger = logging.getLogger(__name__)

GOODBYE_TIMEOUT_S: Final = 1.0
"""Time for the goodbye of a closing client to one broker, s."""

SAYINGS_MAX: Final = 256
"""Most waiting answers to one broker. Beyond it the oldest is dropped."""

SETTLED_MS: Final = 10_000
"""Age of a Session at which its broker knows the other members too, ms. They retry more often."""

OnCommand = Callable[[groups.SessionReply, str], None]
"""Function of a broker's command and the broker's name. It must not block."""

SessionStream = ClientStream[groups.SessionReply, groups.SessionRequest]


class SessionOwner(Protocol):
    """Owner of the Sessions: the parts of an open `ClientInstance`."""

    env: Environment
    client_id: str
    """Id by which brokers know the client."""

    async def broker(self, broker_name: str, broker_id: int = MASTER_ID) -> Connection:
        """Return the connection to a broker and open it if needed."""
        ...

    def forget(self, broker_name: str, connection: Connection, broker_id: int = MASTER_ID) -> None:
        """Close the failed `connection`. The next call of `broker` opens a new one."""
        ...

    def look_for(self, broker_name: str) -> None:
        """Request a refresh of the members of a broker name."""
        ...


class BrokerSession:
    """Session with one broker. A broken stream is opened again. Owned by `BrokerSessions`."""

    def __init__(
        self,
        broker_name: str,
        broker_id: int,
        owner: SessionOwner,
        heartbeat_data: HeartbeatData,
        *,
        incarnation: str,
        heartbeat_s: float,
        answer_timeout_s: float,
        retry: RetryPolicy,
        on_members_changed: Callable[[str], None],
        on_command: OnCommand,
    ) -> None:
        self._broker_name = broker_name
        self._broker_id = broker_id
        self._owner = owner
        self._heartbeat_data = heartbeat_data
        self._incarnation = incarnation
        self._heartbeat_s = heartbeat_s
        self._answer_timeout_s = answer_timeout_s
        self._retry = retry
        self._on_members_changed = on_members_changed
        self._on_command = on_command
        self._sayings: deque[groups.SessionRequest] = deque(maxlen=SAYINGS_MAX)
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()
        """Lock of writes: two concurrent writes break a stream, which then cannot be cancelled."""

        self._stream: SessionStream | None = None
        self._is_closing = False
        self._failures = 0
        self.reached = asyncio.Event()
        """Event that ends the pause before the next attempt: the broker is back."""

        self.attempted = asyncio.Event()
        """Event that is set after the first attempt."""

        self.error: TernError | None = None
        """Reason why the broker does not know this client; None = it knows it."""

        self.open_since_ms: int | None = None
        """Begin of the open Session, monotonic ms; None = not open."""

    async def run(self) -> None:
        """Keep the Session open until `close`. Cancelling ends the stream without a goodbye."""
        while True:
            error: TernError = ClosedError("the broker ended the session")
            try:
                await self._talk()
            except TernError as failure:
                error = failure
            if self._is_closing:
                return
            self._stream = self.open_since_ms = None
            self._owner.look_for(self._broker_name)
            self._failures += 1
            is_refused = isinstance(error, RefusedError)
            if self.error is None or (is_refused and str(error) != str(self.error)):
                logger.log(
                    logging.WARNING if is_refused else logging.INFO,
                    "session lost broker=%s broker_id=%s err=%s",
                    self._broker_name,
                    self._broker_id,
                    error,
                )
            self.error = error
            self.attempted.set()
            self.reached.clear()
            delay_s = self._retry.delay_s(self._failures, self._owner.env.random)
            with suppress(TimeoutError):
                async with self._owner.env.timers.timeout(delay_s):
                    await self.reached.wait()

    def send_heartbeat(self) -> None:
        """Send a heartbeat with changed data now."""
        self._changed.set()

    def say(self, request: groups.SessionRequest) -> None:
        """Queue an answer. It is lost if the stream breaks before."""
        self._sayings.append(request)
        self._changed.set()

    async def close(self) -> bool:
        """Say goodbye, so that the broker drops the client at once.

        Returns:
            True if the broker was told: the `run` task ends soon.
        """
        self._is_closing = True
        stream = self._stream
        if stream is None:
            return False
        with suppress(TernError, TimeoutError):
            async with asyncio.timeout(GOODBYE_TIMEOUT_S), self._writing:
                await stream.write(groups.SessionRequest(goodbye=groups.Goodbye()))
                await stream.finish()
                return True
        return False

    async def _talk(self) -> None:
        connection = await self._owner.broker(self._broker_name, self._broker_id)
        stream: SessionStream = connection.open(SESSION)
        try:
            await self._greet(stream)
            async with OwnedTasks() as tasks:
                tasks.spawn(self._send_heartbeats(stream), f"heartbeats {self._broker_name}")
                while (reply := await stream.read()) is not None:
                    if reply.HasField("members_changed"):
                        self._on_members_changed(reply.members_changed.group)
                    else:
                        self._on_command(reply, self._broker_name)
        except TransportError:
            self._owner.forget(self._broker_name, connection, self._broker_id)
            raise
        finally:
            self._stream = None
            stream.cancel()

    async def _greet(self, stream: SessionStream) -> None:
        try:
            async with self._owner.env.timers.timeout(self._answer_timeout_s):
                self._changed.clear()
                self._sayings.clear()
                await stream.write(
                    self._heartbeat_data.hello(self._owner.client_id, self._incarnation)
                )
                reply = await stream.read()
        except TimeoutError:
            raise RequestTimedOut(f"broker {self._broker_name}: no answer to hello") from None
        if reply is None:
            raise ClosedError(f"broker {self._broker_name}: ended the session before its welcome")
        status = reply.welcome.status
        if status.code:
            raise refusal(status.code, status.remark, self._broker_name)
        self._stream = stream
        self._failures = 0
        self.error = None
        self.open_since_ms = self._owner.env.clock.monotonic_ms()
        self.attempted.set()
        logger.info("session open broker=%s broker_id=%s", self._broker_name, self._broker_id)
        # Members may have come or gone while there was no Session.
        for group in tuple(self._heartbeat_data.consumers):
            self._on_members_changed(group)
        self._on_command(reply, self._broker_name)

    async def _send_heartbeats(self, stream: SessionStream) -> None:
        timers = self._owner.env.timers
        while True:
            with suppress(TimeoutError):
                async with timers.timeout(self._heartbeat_s, wait=Wait.HEARTBEAT):
                    await self._changed.wait()
            self._changed.clear()
            try:
                async with self._writing:
                    if self._is_closing:
                        return  # the goodbye is the last word
                    while self._sayings:
                        await stream.write(self._sayings.popleft())
                    await stream.write(self._heartbeat_data.heartbeat())
            except TernError:  # the reader gets the reason
                stream.cancel()
                return


class BrokerSessions:
    """Sessions of one client, one for each member of its broker names.

    Consumers have Sessions with slaves too: while a master is away, its slave knows the members of
    each group, and rebalances go on. Producers have Sessions only with masters.

    Owned by one `ClientInstance` and used only on its event loop.
    """

    def __init__(
        self,
        owner: SessionOwner,
        tasks: OwnedTasks,
        *,
        heartbeat_s: float,
        answer_timeout_s: float,
        retry: RetryPolicy,
    ) -> None:
        self._owner = owner
        self._tasks = tasks
        self._heartbeat_s = heartbeat_s
        self._answer_timeout_s = answer_timeout_s
        self._retry = retry
        self._incarnation = f"{owner.env.random.getrandbits(64):016x}"
        self._heartbeat_data = HeartbeatData()
        self._members_changed: dict[str, Callable[[], None]] = {}
        self._commands: dict[str, list[OnCommand]] = {
            "place_registered": [self._note_place],
            "subscriptions_differ": [self._note_differences],
        }
        self._differences: dict[str, list[str]] = {}
        self._attended: set[str] = set()
        self._open: dict[tuple[str, int], tuple[BrokerSession, asyncio.Task[None]]] = {}
        self._is_closing = False

    def put_producer(self, group: str) -> None:
        """Announce to present and later brokers that this client produces in `group`."""
        if group not in self._heartbeat_data.producers:
            self._heartbeat_data.producers.add(group)
            self._send_heartbeats()

    def remove_producer(self, group: str) -> None:
        """Withdraw the announcement of `put_producer`."""
        if group in self._heartbeat_data.producers:
            self._heartbeat_data.producers.remove(group)
            self._send_heartbeats()

    def put_consumer(
        self, group: groups.ConsumerGroup, on_members_changed: Callable[[], None]
    ) -> None:
        """Announce to present and later brokers that this client consumes in `group`.

        Args:
            group: Group with its subscriptions, in place of an earlier one of that name. The caller
                does not change it any more.
            on_members_changed: Called when a broker reports changed members, and at each opening of
                a Session, since a report may have been missed. It must not block.
        """
        self._heartbeat_data.consumers[group.group] = group
        self._members_changed[group.group] = on_members_changed
        self._send_heartbeats()

    def remove_consumer(self, group: str) -> None:
        """Withdraw the announcement of `put_consumer`. Other members get the queues at once."""
        if self._heartbeat_data.consumers.pop(group, None) is not None:
            del self._members_changed[group]
            self._send_heartbeats()

    @property
    def consumed_topics(self) -> dict[str, frozenset[str]]:
        """Topics of each consumer group of this client. Any thread may read it."""
        return {
            name: frozenset(subscription.topic for subscription in group.subscriptions)
            for name, group in self._heartbeat_data.consumers.copy().items()
        }

    @property
    def roles(self) -> list[str]:
        """Roles of this client, such as `producer of shop`. Any thread may read it."""
        producers = sorted(self._heartbeat_data.producers.copy())
        consumers = sorted(self._heartbeat_data.consumers.copy())
        return [f"producer of {each}" for each in producers] + [
            f"consumer of {each}" for each in consumers
        ]

    @property
    def consumer_topics(self) -> frozenset[str]:
        """Topics of all consumer groups of this client."""
        return frozenset[str]().union(*self.consumed_topics.values())

    def on_command(self, name: str, handler: OnCommand) -> Callable[[], None]:
        """Call `handler` with every command of a kind, from all brokers.

        Args:
            name: Field of the contract's `SessionReply`, such as `offsets_reset`; `welcome` = the
                opening of a Session, before which commands may have been missed.
            handler: Function of the reply and the broker's name, called after earlier handlers.

        Returns:
            Function that unregisters the handler.
        """
        handlers = self._commands.setdefault(name, [])
        handlers.append(handler)
        return lambda: handlers.remove(handler)

    def say(self, broker_name: str, request: groups.SessionRequest) -> bool:
        """Answer a broker on its Sessions. Return False without a Session.

        Every member of the name gets the answer. Members without a request ignore it.
        """
        sessions = [session for key, (session, _) in self._open.items() if key[0] == broker_name]
        for session in sessions:
            session.say(request)
        return bool(sessions)

    def attend(self, broker_name: str) -> None:
        """Keep a Session with the master of `broker_name`, also without a consumed topic."""
        if broker_name not in self._attended:
            self._attended.add(broker_name)
            self._begin((broker_name, MASTER_ID))

    def keep_to(self, members: Iterable[tuple[str, int]]) -> None:
        """Keep Sessions with these members, by broker name and id, and with attended masters.

        Other Sessions end, except open ones with a member of these broker names: a NameServer that
        does not name the member may have just started.
        """
        wanted = {(name, MASTER_ID) for name in self._attended}.union(members)
        names = {name for name, _ in wanted}
        for key in sorted(wanted):
            self._begin(key)
        for key in self._open.keys() - wanted:
            session, task = self._open[key]
            if key[0] in names and session.open_since_ms is not None:
                continue
            del self._open[key]
            logger.info("session closed broker=%s broker_id=%s", *key)
            self._tasks.spawn(_end(session, task), f"end session {key[0]} {key[1]}")

    def reach(self, broker_name: str, broker_id: int) -> None:
        """Open a lost Session without its pause if its broker was away: it has been connected.

        A broker that breaks Sessions must not break new connections at the pace of their users.
        """
        opened = self._open.get((broker_name, broker_id))
        if opened is not None and isinstance(opened[0].error, Unreachable):
            opened[0].reached.set()

    def open_since_ms(self, broker_name: str, broker_id: int) -> int | None:
        """Return the begin of the Session with a member, monotonic ms; None = no Session."""
        opened = self._open.get((broker_name, broker_id))
        return None if opened is None else opened[0].open_since_ms

    def is_settled(self, broker_name: str, broker_id: int, *, now_ms: int) -> bool:
        """Return whether a member's Session is old enough that it knows all other members."""
        since_ms = self.open_since_ms(broker_name, broker_id)
        return since_ms is not None and now_ms - since_ms >= SETTLED_MS

    async def attempted(self, *, timeout_s: float) -> None:
        """Wait for the first attempt of every Session.

        Raises:
            RefusedError: Another live client has the id of this one.
        """
        sessions = [session for session, _ in self._open.values()]
        with suppress(TimeoutError):
            async with self._owner.env.timers.timeout(timeout_s):
                for session in sessions:
                    await session.attempted.wait()
        for session in sessions:
            if isinstance(session.error, RefusedError) and not session.error.retryable:
                raise session.error

    async def close(self) -> None:
        """Send goodbyes to all brokers concurrently, each within a second."""
        self._is_closing = True
        ending = [
            self._tasks.spawn(_end(session, task), f"end session {broker_name} {broker_id}")
            for (broker_name, broker_id), (session, task) in self._open.items()
        ]
        self._open.clear()
        if ending:
            await asyncio.wait(ending)

    def _begin(self, key: tuple[str, int]) -> None:
        if key in self._open or self._is_closing:
            return
        session = BrokerSession(
            *key,
            self._owner,
            self._heartbeat_data,
            incarnation=self._incarnation,
            heartbeat_s=self._heartbeat_s,
            answer_timeout_s=self._answer_timeout_s,
            retry=self._retry,
            on_members_changed=self._dispatch_members_changed,
            on_command=self._dispatch_command,
        )
        task = self._tasks.spawn(session.run(), f"session {key[0]} {key[1]}")
        self._open[key] = (session, task)

    def _send_heartbeats(self) -> None:
        for session, _ in self._open.values():
            session.send_heartbeat()

    def _note_place(self, reply: groups.SessionReply, broker_name: str) -> None:
        """Refresh the routes of a member that has just registered: it may have been promoted."""
        told = reply.place_registered
        logger.info(
            "member is registered broker=%s broker_id=%s epoch=%s",
            broker_name,
            told.broker_id,
            told.epoch,
        )
        self._owner.look_for(broker_name)

    def _note_differences(self, reply: groups.SessionReply, _broker_name: str) -> None:
        """Log differences between the members' subscriptions once, not for every broker."""
        told = reply.subscriptions_differ
        found = list(told.differences)
        if found == self._differences.get(told.group, []):
            return
        self._differences[told.group] = found
        if found:
            logger.warning(
                "members of a group subscribe differently, so some messages reach no consumer"
                " group=%s differences=%s",
                told.group,
                "; ".join(found),
            )
        else:
            logger.info("members of a group subscribe alike again group=%s", told.group)

    def _dispatch_members_changed(self, group: str) -> None:
        callback = self._members_changed.get(group)
        if callback is not None:
            callback()

    def _dispatch_command(self, reply: groups.SessionReply, broker_name: str) -> None:
        for handler in tuple(self._commands.get(reply.WhichOneof("reply") or "", ())):
            handler(reply, broker_name)


async def _end(session: BrokerSession, task: asyncio.Task[None]) -> None:
    """Close `session`, and cancel its task in any case."""
    if await session.close():
        await asyncio.wait((task,), timeout=GOODBYE_TIMEOUT_S)
    task.cancel()
    await asyncio.wait((task,))
