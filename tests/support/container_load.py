"""Senders and readers of a cluster whose containers die: what they did is a history."""

import asyncio
import contextlib
import itertools
import json
import secrets
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from ternmq_client.config import ClientConfig, nameserver_texts
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendStatus
from ternmq_model.stored_message import StoredMessage
from ternmq_producer.producer import Producer
from ternmq_remoting.rpc import Identity
from ternmq_runtime.clock import SystemClock
from ternmq_runtime.service import OwnedTasks
from tests.support.brokers import Client, connected
from tests.support.containers import BROKER_PORTS, NAMESERVERS, console, log_bytes
from tests.support.history import Delivery, GroupRules, History, Outcome, id_of, make_body
from tests.support.processes import eventually
from tests.support.simulated_cluster import lying_of, records_of

BROKERS: Final = ("broker-a", "broker-b")
MEMBERS: Final = 2
"""Of each broker name: a master and a slave."""

QUEUES: Final = 4
SENDERS: Final = 8
PAUSE_S: Final = 0.05
ROUTE_REFRESH_S: Final = 1.0
"""A broker that ended in order is out of the routes: so soon it is sent to again."""

_CLOCK: Final = SystemClock()


@dataclass
class ContainerLoad:
    """Goes on whatever happens. Made by `container_load`.

    Attributes:
        answers: How many sends got which status, by broker name.
        failures: Those that raised, by the class.
    """

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

        wanted = count() + more
        answered = await eventually(lambda: count() >= wanted)
        assert answered, f"{name or 'nobody'} answers no more with {status}"

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
                name,
                group,
                message.body,
                message.queue,
                message.queue_offset,
                _CLOCK.wall_ms(),
                message.reconsume_times,
                True,
            )
        )
        self._finished.setdefault(group, set()).add(name)

    async def until_consumed(self) -> None:
        """Wait until both groups have had all that was acknowledged; the history names the rest."""
        wanted = {
            each.message_id for each in self.history.sent.values() if each.outcome is Outcome.STORED
        }
        await eventually(
            lambda: all(wanted <= self._finished.get(group, set()) for group in self.groups)
        )

    async def scan(self) -> None:
        """Note every record of the topic, as the masters have them."""
        for name in BROKERS:
            async with connected_to_master(name) as client:
                found = await records_of(client, self.topic, name)
            self.history.lying += [lying_of(*each) for each in found]

    async def until_followed(self, name: str) -> None:
        """Wait until the master of a broker name waits for its slave before it says SEND_OK."""

        async def is_followed() -> bool:
            return any(each.get("in_sync_now") == MEMBERS for each in await members_of(name))

        assert await eventually(is_followed), f"{name} has no slave in sync"

    async def until_in_sync(self, name: str) -> int:
        """Wait until all members of a broker name have one log; return where it ends."""
        members: list[dict[str, Any]] = []

        async def is_in_sync() -> bool:
            nonlocal members
            with contextlib.suppress(AssertionError):
                members = await members_of(name)
            ends = {each[key] for each in members for key in ("log_end", "confirm_offset")}
            return len(members) == MEMBERS and len(ends) == 1

        assert await eventually(is_in_sync), f"{name} is not in sync: {members}"
        return int(members[0]["log_end"])

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


def connected_to_master(name: str) -> AbstractAsyncContextManager[Client]:
    """Give a connection to the master of a broker name, whichever container that is."""
    addresses = (f"127.0.0.1:{port}" for port in BROKER_PORTS.values())
    return connected(*addresses, expect=Identity("DefaultCluster", name, 0, 0))


async def members_of(name: str) -> list[dict[str, Any]]:
    """Return what the console tells of the members of a broker name."""
    members: list[dict[str, Any]]
    members = json.loads(await console("broker", "ha", name, "--json"))["members"]
    return members


@contextlib.asynccontextmanager
async def container_load() -> AsyncGenerator[ContainerLoad]:
    """Run a load in the background.

    The end of the block stops the sends, waits for the readers, and compares their messages with
    those of all members.
    """
    load = ContainerLoad(f"load-{secrets.token_hex(4)}")
    for name in BROKERS:
        async with connected_to_master(name) as client:
            await client.put_topic(load.topic, QUEUES)
    pushed, polling = load.groups
    async with (
        _pushed(load, pushed),
        _pushed(load, pushed),
        PullConsumer(polling, client=_client()) as consumer,
        OwnedTasks() as polls,
    ):
        await consumer.subscribe(load.topic)
        polls.spawn(load.poll(consumer, polling), "poll")
        async with Producer("senders", client=_client()) as producer, OwnedTasks() as sends:
            for each in range(SENDERS):
                sends.spawn(load.send(producer, f"{each}"), f"send {each}")
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
        client=_client(),
        config=PushConsumerConfig(
            consume_from=ConsumeFrom.FIRST_OFFSET, rebalance_s=2.0, commit_s=0.5, retry_s=0.5
        ),
    )


def _client() -> ClientConfig:
    return ClientConfig(nameservers=nameserver_texts(NAMESERVERS), route_refresh_s=ROUTE_REFRESH_S)
