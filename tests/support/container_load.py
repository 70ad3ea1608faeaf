"""Senders and readers of a cluster whose containers die: what they did is a history."""

import asyncio
import contextlib
import itertools
import json
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from ternmq_client.config import ClientConfig, nameserver_texts
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.pull import PullConsumer
from ternmq_consumer.push import PushConsumer
from ternmq_model.address import Address
from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendStatus
from ternmq_model.stored_message import StoredMessage
from ternmq_producer.producer import Producer
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Identity
from ternmq_remoting.system import system_environment
from tests.support.brokers import Client
from tests.support.containers import BROKER_PORTS, NAMESERVERS, log_bytes, ternmq
from tests.support.history import Delivery, GroupRules, History, Outcome, id_of, make_body
from tests.support.simulated_cluster import lying_of, records_of

BROKERS: Final = ("broker-a", "broker-b")
MEMBERS: Final = 2
"""Of each broker name: a master and a slave."""

QUEUES: Final = 4
SENDERS: Final = 8
PAUSE_S: Final = 0.01
ROUTE_REFRESH_S: Final = 1.0
"""A broker that ended in order is out of the routes: so soon it is sent to again."""

STALLED_S: Final = 60.0
"""Without any progress for so long, a scenario has failed."""


@dataclass
class ContainerLoad:
    """Goes on whatever happens. Made by `container_load`.

    Attributes:
        answers: How many sends got which status, by broker name.
        failures: Those that raised, by the class.
    """

    env: Environment
    topic: str
    history: History = field(default_factory=lambda: History(stored_twice_allowed=True))
    answers: Counter[tuple[str, SendStatus]] = field(
        default_factory=Counter[tuple[str, SendStatus]]
    )
    failures: Counter[str] = field(default_factory=Counter[str])
    _finished: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    @property
    def groups(self) -> tuple[str, str]:
        """One that is pushed to, and one that polls."""
        return (f"{self.topic}-pushed", f"{self.topic}-polling")

    async def until_acknowledged(
        self, more: int, name: str | None = None, status: SendStatus = SendStatus.SEND_OK
    ) -> None:
        """Wait until so many more sends got this answer, of one broker name or of any."""

        def count() -> int:
            return sum(
                number
                for (broker, told), number in self.answers.items()
                if told is status and name in (broker, None)
            )

        limit_s, wanted = _now_s() + STALLED_S, count() + more
        while count() < wanted:
            assert _now_s() < limit_s, f"{name or 'nobody'} answers no more with {status}"
            await asyncio.sleep(0.02)

    async def go_on(self, duration_s: float) -> None:
        """Let a state of things last for longer than somebody's patience."""
        await asyncio.sleep(duration_s)

    async def send(self, producer: Producer, name: str) -> None:
        """Send messages one after the other, until cancelled."""
        for number in itertools.count():
            message_id = f"{name}-{number}"
            sent = self.history.note_sent(message_id, self.topic, Outcome.UNKNOWN)
            try:
                result = await producer.send(Message(self.topic, make_body(message_id, 200)))
            except TernError as error:
                if not error.may_have_happened:
                    sent.outcome = Outcome.REFUSED
                self.failures[type(error).__name__] += 1
            else:
                self.answers[result.queue.broker_name, result.status] += 1
                if result.status is SendStatus.SEND_OK:
                    sent.outcome = Outcome.STORED
            await asyncio.sleep(PAUSE_S)

    async def poll(self, consumer: PullConsumer, group: str) -> None:
        """Poll until cancelled."""
        while True:
            try:
                for message in await consumer.poll():
                    self.note(group, message)
                await consumer.commit()
            except TernError:
                await asyncio.sleep(0.1)

    def note(self, group: str, message: StoredMessage) -> None:
        """Note that a group has had a message."""
        name = id_of(message.body)
        self.history.deliveries.append(
            Delivery(
                *(name, group, message.body, message.queue, message.queue_offset),
                *(self.env.clock.wall_ms(), message.reconsume_times, True),
            )
        )
        self._finished.setdefault(group, set()).add(name)

    async def until_consumed(self) -> None:
        """Wait until both groups have had all that was acknowledged; the history names the rest."""
        wanted = {
            each.message_id for each in self.history.sent.values() if each.outcome is Outcome.STORED
        }
        limit_s = _now_s() + STALLED_S
        while _now_s() < limit_s:
            if all(wanted <= self._finished.get(group, set()) for group in self.groups):
                return
            await asyncio.sleep(0.1)

    async def scan(self) -> None:
        """Note every record of the topic, as the masters have them."""
        for name in BROKERS:
            client = await self.connect(name)
            records = await records_of(client, self.topic, name)
            self.history.lying += [lying_of(*each) for each in records]
            await client.connection.close()

    async def connect(self, name: str) -> Client:
        """Return a connection to the master of a broker name, whichever container that is."""
        addresses = [Address("127.0.0.1", port) for port in BROKER_PORTS.values()]
        master = Identity("DefaultCluster", name, 0, 0)
        return Client(await self.env.network.connect(addresses, expect=master))

    async def until_followed(self, name: str) -> None:
        """Wait until the master of a broker name waits for its slave before it says SEND_OK."""
        async with asyncio.timeout(STALLED_S):
            while True:
                told = json.loads(await ternmq("broker", "ha", name, "--json"))["members"]
                if any(each.get("in_sync_now") == MEMBERS for each in told):
                    return
                await asyncio.sleep(0.2)

    async def until_in_sync(self, name: str) -> int:
        """Wait until all members of a broker name have one log; return where it ends."""
        members: list[dict[str, Any]] = []
        limit_s = _now_s() + STALLED_S
        while _now_s() < limit_s:
            with contextlib.suppress(AssertionError):
                members = json.loads(await ternmq("broker", "ha", name, "--json"))["members"]
                [end, *others] = {each["log_end"] for each in members}
                confirmed = {each["confirm_offset"] for each in members}
                if len(members) == MEMBERS and not others and confirmed == {end}:
                    return int(end)
            await asyncio.sleep(0.2)
        raise AssertionError(f"{name} is not in sync: {members}")

    async def compare_logs(self) -> None:
        """Assert that the members of each broker name have the same log, byte for byte."""
        for name in BROKERS:
            end = await self.until_in_sync(name)
            logs = {each: await log_bytes(each, end) for each in (name, f"{name}-slave")}
            assert len(set(logs.values())) == 1, f"up to {end}: {logs}"

    def check(self) -> None:
        """Assert that nothing acknowledged is lost, and nothing that lies there unconsumed."""
        told = {f"{name} {status.name}": count for (name, status), count in self.answers.items()}
        self.history.check(
            [GroupRules(group, frozenset({self.topic})) for group in self.groups],
            seed=f"{told} {dict(self.failures)}",
        )


@contextlib.asynccontextmanager
async def container_load() -> AsyncGenerator[ContainerLoad]:
    """Give a load that has begun; leaving it ends the sends, waits for the readers, and checks
    what they had and what all members have."""
    async with contextlib.AsyncExitStack() as stack:
        env = await stack.enter_async_context(system_environment())
        load = ContainerLoad(env, f"load-{secrets.token_hex(4)}")
        for name in BROKERS:
            client = await load.connect(name)
            await client.put_topic(load.topic, QUEUES)
            await client.connection.close()
        pushed, polling = load.groups
        for _ in range(2):
            await stack.enter_async_context(_pushed(load, pushed))
        consumer = PullConsumer(polling, client_config=_client())
        await stack.enter_async_context(consumer)
        await consumer.subscribe(load.topic)
        await stack.enter_async_context(_meanwhile(load.poll(consumer, polling)))
        async with (
            Producer("senders", client=_client()) as producer,
            _meanwhile(*(load.send(producer, f"{each}") for each in range(SENDERS))),
        ):
            for name in BROKERS:
                await load.until_acknowledged(20, name)
            yield load
        await load.until_consumed()
        await load.scan()
    load.check()
    await load.compare_logs()


def _pushed(load: ContainerLoad, group: str) -> PushConsumer:
    async def listen(message: StoredMessage) -> bool:
        load.note(group, message)
        return True

    return PushConsumer(
        group,
        load.topic,
        listener=listen,
        nameserver=NAMESERVERS,
        client_config=_client(),
        config=PushConsumerConfig(
            consume_from=ConsumeFrom.FIRST_OFFSET, rebalance_s=2.0, commit_s=0.5, retry_s=0.5
        ),
    )


def _client() -> ClientConfig:
    return ClientConfig(nameservers=nameserver_texts(NAMESERVERS), route_refresh_s=ROUTE_REFRESH_S)


@contextlib.asynccontextmanager
async def _meanwhile(*work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Do work that has no end, until the block ends."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


def _now_s() -> float:
    return asyncio.get_running_loop().time()
