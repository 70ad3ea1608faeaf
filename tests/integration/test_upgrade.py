"""A data directory that the version before this one and this one use in turn."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from ternmq import (
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    PushConsumerConfig,
    ReconsumeLater,
    Resolution,
    StoredMessage,
    TransactionProducer,
)
from ternmq_broker.table_formats import FoundTables, find_tables
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import contracts
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.log.log_notes import load_notes
from tests.support.brokers import Client, bodies, connected
from tests.support.console import json_of, text_of
from tests.support.older_version import unpack_older
from tests.support.processes import (
    TERNMQ,
    TINY,
    ServiceProcess,
    eventually,
    running_broker,
    running_dev,
    running_nameserver,
)
from tests.support.transactions import bodies_of

TOPIC: Final = "orders"
GROUP: Final = "readers"
PLAIN: Final = 10
LEVEL: Final = 2
DELAY_MS: Final = 5000
SETTINGS: Final = (
    *TINY,
    "broker.offsets_interval_ms=200",
    "broker.transaction_timeout_ms=500",
    "broker.transaction_check_interval_ms=500",
    "broker.transaction_checks_max=1000",
)
CONSUMER: Final = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, retry_s=0.5)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    return unpack_older(tmp_path_factory.mktemp("older"))


@dataclass
class Use:
    """What is done in all lives of a broker, and what comes of it.

    Attributes:
        data: The broker's directory.
        nameserver: Its address.
        name: The broker's.
        life: Its number.
        stored: What the topic must have.
        wanted: What the group must have been handed.
        seen: What it was handed.
        waiting: What the next life is to store.
        kept: The group's offset and its version at the end of the life before.
    """

    data: Path
    nameserver: str = ""
    name: str = ""
    life: int = -1
    stored: Counter[str] = field(default_factory=Counter[str])
    wanted: Counter[str] = field(default_factory=Counter[str])
    seen: Counter[str] = field(default_factory=Counter[str])
    waiting: Sequence[str] = ()
    kept: tuple[int, int] = (-1, 0)

    def named(self, *words: str) -> list[str]:
        """Return the names of messages of this life."""
        return [f"{self.life} {word}" for word in words]

    def listen(self, message: StoredMessage) -> ReconsumeLater | None:
        """Take a message, but for those that are to fail."""
        name = message.body.decode()
        self.seen[name] += 1
        if name.endswith("dead"):
            return ReconsumeLater(-1)
        is_failing = name.endswith("retry") and not message.reconsume_times
        return ReconsumeLater(LEVEL) if is_failing else None

    def check(self, message: StoredMessage) -> Resolution:
        """Decide on the transactions of the life before."""
        life, word = message.body.decode().split()
        if int(life) == self.life:
            return Resolution.UNKNOWN
        return Resolution.COMMIT if word == "commit" else Resolution.ROLLBACK

    async def ask(self, *words: str) -> Any:
        """Run a verb for programs."""
        return await asyncio.to_thread(json_of, *words, "--nameserver", self.nameserver)

    async def live(self, service: ServiceProcess) -> None:
        """Have a broker do all that keeps state, and leave some of it pending."""
        self.nameserver, self.name = service.nameserver, service.broker_name
        self.life += 1
        async with (
            connected(service.broker) as client,
            Producer("senders", nameserver=self.nameserver) as producer,
            TransactionProducer(
                "payers",
                execute=lambda message, _: Resolution.UNKNOWN,
                check=self.check,
                topics=(TOPIC,),
                nameserver=self.nameserver,
            ) as payer,
        ):
            await self.check_settings(client)
            await self.consume(producer)
            await self.check_content(client)
            self.kept = await committed(client)
            assert await eventually(self.is_kept)
            for name, delay in zip(
                self.named("level", "timed"),
                ({"delay_level": LEVEL}, {"deliver_after_ms": DELAY_MS}),
                strict=True,
            ):
                await producer.send(Message(TOPIC, name.encode(), **delay))
            for name in self.named("commit", "rollback"):
                await payer.send(Message(TOPIC, name.encode()))
        self.waiting = self.named("level", "timed", "commit")

    async def check_settings(self, client: Client) -> None:
        """Look for what the life before has set, and set something else."""
        if not self.life:
            await client.put_topic(TOPIC, 1)
            await self.ask("group", "create", GROUP, "--retries", "20")
        else:
            assert await committed(client) == self.kept
            order = await self.ask("topic", "order", TOPIC)
            assert order["order"] == f"{self.name}:1"
        request = admin.DescribeGroupRequest(group=GROUP)
        group = await client.call(contracts.DESCRIBE_GROUP, request)
        assert group.settings.retries_max == 20 + self.life
        await self.ask("group", "alter", GROUP, "--retries", str(21 + self.life))
        await self.ask("topic", "order", TOPIC, f"{self.name}:1")

    async def consume(self, producer: Producer) -> None:
        """Send and consume until nothing of the lives before waits."""
        plain = self.named(*map(str, range(PLAIN)), "retry", "dead")
        self.stored.update([*plain, *self.waiting])
        retried = [f"{self.life - 1} retry"] if self.life else []
        self.wanted.update([*plain, *self.waiting, *retried])
        for number, name in enumerate(plain):
            tag = "red" if number % 2 else "blue"
            await producer.send(Message(TOPIC, name.encode(), tags=tag, keys=[name[-1]]))
        listener = self.listen
        async with PushConsumer(
            GROUP, TOPIC, listener=listener, nameserver=self.nameserver, config=CONSUMER
        ):
            assert await eventually(lambda: self.seen >= self.wanted), self.wanted - self.seen
        # A retry of this life may have come already.
        assert set(self.seen - self.wanted) <= set(self.named("retry"))

    async def check_content(self, client: Client) -> None:
        """Compare what lies in the topic, whole, by key and by tag."""
        assert Counter(map(bytes.decode, await bodies_of(client, TOPIC))) == self.stored
        by_key = await self.ask("message", "query", "--topic", TOPIC, "--key", "3")
        assert len(by_key) == self.life + 1
        red = messages.Subscription(expression="red")
        by_tag = bodies(await client.pull(TOPIC, subscription=red))
        assert len(by_tag) == (self.life + 1) * (PLAIN + 2) // 2
        letters = await bodies_of(client, f"%DLQ%{GROUP}")
        assert letters == [f"{life} dead".encode() for life in range(self.life + 1)]
        request = admin.DescribeBrokerRequest()
        assert not (await client.call(contracts.DESCRIBE_BROKER, request)).transactions.open

    def tables(self) -> FoundTables:
        """Return the tables as the next start finds them."""
        files = RealFileSystem()
        noted = load_notes(files, self.data, lambda _: None).tables
        return find_tables(files, self.data, noted=noted, now_ms=0)

    def is_kept(self) -> bool:
        """Tell whether a crash would neither set the group back nor deliver anything again."""
        found = self.tables()
        offset = found.offsets.table and found.offsets.table.query(GROUP, TOPIC, 0)
        delayed = found.delays.table.get(LEVEL) if found.delays.table else 0
        timed = found.timer.table.first_offset if found.timer.table else 0
        # A retry of this life may have been delivered as well.
        return offset == self.kept[0] and delayed >= 2 * self.life and timed == self.life


async def committed(client: Client) -> tuple[int, int]:
    """Return where the group is, and the version of that."""
    request = groups.QueryOffsetRequest(group=GROUP, topic=TOPIC)
    reply: groups.QueryOffsetReply = await client.call(contracts.QUERY_OFFSET, request)
    return reply.offset, reply.version


def errors(service: ServiceProcess) -> list[str]:
    """Return the lines of a service's log that tell of errors."""
    return [line for line in service.log.read_text().splitlines() if " ERROR " in line]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_store_is_used_by_both_versions_in_turn(
    older: Sequence[str], tmp_path: Path, *, is_killed: bool
) -> None:
    told = [word for each in SETTINGS for word in ("--set", each)]
    use = Use(tmp_path / "dev" / "data" / "broker")
    for launcher in (older, TERNMQ, older, TERNMQ):
        with running_dev(tmp_path / "dev", *told, launcher=launcher) as service:
            asyncio.run(use.live(service))
            if is_killed:
                service.kill()
            else:
                assert service.end() == 0
        assert not errors(service)
        found = use.tables()
        assert all(each.is_current for each in found) == (launcher is TERNMQ)
        assert not [each.refusal for each in found if each.refusal]
        for program in (TERNMQ, older):
            done = subprocess.run(
                [*program, "store", "check", use.data], capture_output=True, text=True
            )
            assert not done.returncode, f"{program}: {done.stdout}"


async def send_numbers(nameserver: str, numbers: range) -> None:
    """Send numbers: most at once, others delayed."""
    async with Producer("senders", nameserver=nameserver) as producer:
        for number in numbers:
            delay = {8: {"delay_level": LEVEL}, 9: {"deliver_after_ms": DELAY_MS}}
            later = delay.get(number % 10, {})
            await producer.send(Message(TOPIC, b"%d" % number, **later))


def test_broker_name_is_upgraded_slave_first(older: Sequence[str], tmp_path: Path) -> None:
    settings = (*TINY, "broker.offsets_interval_ms=200")

    def member(broker_id: int, launcher: Sequence[str]) -> ServiceProcess:
        words = ("--role", "sync_master", "--broker-id", broker_id)
        folder = tmp_path / f"member-{broker_id}"
        return running_broker(
            folder, nameserver, *words, name="a", settings=settings, launcher=launcher
        )

    async def in_sync(master: ServiceProcess) -> None:
        async with connected(master.broker) as client:
            await client.until_in_sync(2)

    async def use(master: ServiceProcess, slave: ServiceProcess) -> None:
        """Have it all at the slave that a promotion needs."""
        await in_sync(master)
        await send_numbers(nameserver, range(10, 20))
        async with connected(master.broker) as client, connected(slave.broker) as other:
            offset = groups.QueueOffset(topic=TOPIC, queue_id=0, offset=7)
            request = groups.CommitOffsetsRequest(group=GROUP, offsets=[offset])
            await client.call(contracts.COMMIT_OFFSETS, request)

            async def is_told() -> bool:
                return await committed(other) == (7, 0)

            assert await eventually(is_told)

    async def found(master: ServiceProcess) -> None:
        """Check that nothing is lost, and nothing delivered twice."""
        await in_sync(master)
        await send_numbers(nameserver, range(20, 28))
        async with connected(master.broker) as client:
            assert await committed(client) == (7, 0)

            async def is_all() -> bool:
                return len(await bodies_of(client, TOPIC)) >= 28

            assert await eventually(is_all)
            assert sorted(map(int, await bodies_of(client, TOPIC))) == list(range(28))

    async def begin(master: ServiceProcess) -> None:
        async with connected(master.broker) as client:
            await client.put_topic(TOPIC, 1)
        await in_sync(master)
        await send_numbers(nameserver, range(10))

    with (
        running_nameserver(tmp_path / "names") as names,
        ExitStack() as stack,
    ):
        nameserver = names.nameserver
        master, slave = (stack.enter_context(member(each, older)) for each in range(2))
        asyncio.run(begin(master))
        assert slave.end() == 0
        slave = stack.enter_context(member(1, TERNMQ))
        asyncio.run(use(master, slave))
        assert master.end() == 0
        text_of("broker", "promote", "a", "--broker-id", "1", "--yes", "--nameserver", nameserver)
        master = stack.enter_context(member(0, TERNMQ))
        asyncio.run(found(slave))
        assert not errors(slave)
        assert not errors(master)
