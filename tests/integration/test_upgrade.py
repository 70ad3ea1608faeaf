"""A data directory that the version before this one and this one use in turn."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
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
    TopicNotFound,
    TransactionProducer,
)
from ternmq_broker.state.table_formats import StoredTables, find_tables
from ternmq_model.names import WHEEL_TOPIC
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
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
TOLD: Final = [word for each in SETTINGS for word in ("--set", each)]
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
        kept: The version of the group's offset, and the offset, as the last life left them.
    """

    data: Path
    nameserver: str = ""
    name: str = ""
    life: int = -1
    stored: Counter[str] = field(default_factory=Counter[str])
    wanted: Counter[str] = field(default_factory=Counter[str])
    seen: Counter[str] = field(default_factory=Counter[str])
    waiting: Sequence[str] = ()
    kept: tuple[int, int] = (0, 0)

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
            await commit(client, len(self.stored), force=True)  # gives the offset a new version
            before, self.kept = self.kept, await committed(client)
            assert self.kept > before
            # Those of the lives before, and perhaps that of this one.
            retries = len(await bodies_of(client, f"%RETRY%{GROUP}"))
            assert await eventually(lambda: self.is_kept(self.life + retries))
            level, timed, *halves = self.named("level", "timed", "commit", "rollback")
            await producer.send(Message(TOPIC, level.encode(), delay_level=LEVEL))
            await producer.send(Message(TOPIC, timed.encode(), deliver_after_ms=DELAY_MS))
            for half in halves:
                await payer.send(Message(TOPIC, half.encode()))
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
        group = await client.call(service_methods.DESCRIBE_GROUP, request)
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
        ) as consumer:
            assert await eventually(lambda: self.seen >= self.wanted), self.wanted - self.seen
            # A consumer that leaves earlier sends nothing back.
            assert await eventually(lambda: consumer.statistics().sent_back >= 2)
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
        assert not (await client.call(service_methods.DESCRIBE_BROKER, request)).transactions.open

    def is_kept(self, delayed: int) -> bool:
        """Tell whether a crash would neither set the group back nor deliver anything again."""
        found = tables_in(self.data)
        offsets, delays, timer = found.offsets.table, found.delays.table, found.timer.table
        return (
            offsets is not None
            and offsets.query(GROUP, TOPIC, 0) == self.kept[1]
            and (delays.get(LEVEL) if delays else 0) >= delayed
            and (timer.first_offset if timer else 0) >= self.life
        )


def tables_in(data: Path) -> StoredTables:
    """Return the tables as the next start finds them."""
    files = RealFileSystem()
    noted = load_notes(files, data, lambda _: None).tables
    return find_tables(files, data, noted=noted, now_ms=0)


async def committed(client: Client) -> tuple[int, int]:
    """Return the version of the group's offset, and the offset."""
    request = groups.QueryOffsetRequest(group=GROUP, topic=TOPIC)
    reply: groups.QueryOffsetReply = await client.call(service_methods.QUERY_OFFSET, request)
    return reply.version, reply.offset


async def commit(client: Client, offset: int, *, force: bool = False) -> None:
    """Set the group's offset."""
    each = groups.QueueOffset(topic=TOPIC, queue_id=0, offset=offset)
    request = groups.CommitOffsetsRequest(group=GROUP, offsets=[each], force=force)
    await client.call(service_methods.COMMIT_OFFSETS, request)


def errors(service: ServiceProcess) -> list[str]:
    """Return the lines of a service's log that tell of errors."""
    return [line for line in service.log.read_text().splitlines() if " ERROR " in line]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_store_is_used_by_both_versions_in_turn(
    older: Sequence[str], tmp_path: Path, *, is_killed: bool
) -> None:
    use = Use(tmp_path / "dev" / "data" / "broker")
    lives = (older, TERNMQ, older) if is_killed else (older, TERNMQ, older, TERNMQ)
    for launcher in lives:
        with running_dev(tmp_path / "dev", *TOLD, launcher=launcher) as service:
            asyncio.run(use.live(service))
            if is_killed:
                service.kill()
            else:
                assert service.end() == 0
        assert not errors(service)
        found = tables_in(use.data)
        assert all(each.is_current for each in found) == (launcher is TERNMQ)
        assert not [each.refusal for each in found if each.refusal]
        assert "\nsound" in text_of("store", "check", str(use.data))
    done = subprocess.run(
        [*older, "store", "check", str(use.data)], capture_output=True, text=True, check=False
    )
    # Delays of the older version begin at the reception of a message, so it takes the code of a
    # message that was stored in a later tick for wrong.
    problems = [line for line in done.stdout.splitlines() if line.startswith("problem")]
    assert all(WHEEL_TOPIC in each and "has the tag code" in each for each in problems), done.stdout
    assert problems or "\nsound" in done.stdout, done.stdout


async def created(broker: ServiceProcess, topic: str) -> tuple[int | None, int]:
    """Return where the log ended when a topic was created, if told, and the wall clock then."""
    async with connected(broker.broker) as client:
        request = admin.DescribeTopicRequest(topic=topic)
        reply = await client.call(service_methods.DESCRIBE_TOPIC, request)
        is_told = reply.HasField("created_log_offset")
        return reply.created_log_offset if is_told else None, reply.created_at_ms


async def create_again(broker: ServiceProcess, topic: str) -> None:
    async with connected(broker.broker) as client:
        await client.put_topic(topic, 1)
        await client.send(topic)
        await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic=topic))
        await client.put_topic(topic, 1)
        await client.send(topic)


def test_creations_of_topics_outlast_uses_by_the_older_version(
    older: Sequence[str], tmp_path: Path
) -> None:
    with running_dev(tmp_path, launcher=older) as dev:
        asyncio.run(create_again(dev, "ByOlder"))
        assert asyncio.run(created(dev, "ByOlder")) == (None, 0)
    with running_dev(tmp_path) as dev:
        by_older, at_ms = asyncio.run(created(dev, "ByOlder"))
        assert by_older
        assert at_ms == 0
        for topic in ("Stays", "Again"):
            asyncio.run(create_again(dev, topic))
        stays, again = (asyncio.run(created(dev, topic)) for topic in ("Stays", "Again"))
    with running_dev(tmp_path, launcher=older) as dev:
        asyncio.run(create_again(dev, "Again"))
    with running_dev(tmp_path) as dev:
        assert asyncio.run(created(dev, "ByOlder")) == (by_older, 0)
        assert asyncio.run(created(dev, "Stays")) == stays
        now, _ = asyncio.run(created(dev, "Again"))
        assert now is not None
        assert again[0] is not None
        assert now > again[0]


async def send_numbers(nameserver: str, numbers: range) -> None:
    """Send numbers; two of ten wait for their time."""
    async with Producer("senders", nameserver=nameserver) as producer:
        for number in numbers:
            level = LEVEL if number % 10 == 8 else 0
            after_ms = DELAY_MS if number % 10 == 9 else 0
            message = Message(TOPIC, b"%d" % number, delay_level=level, deliver_after_ms=after_ms)
            await producer.send(message)


async def begin(nameserver: str, master: ServiceProcess) -> None:
    """Use a master and its slave of the older version."""
    async with connected(master.broker) as client:
        await client.put_topic(TOPIC, 1)
        await client.until_in_sync(2)
    await send_numbers(nameserver, range(8))


async def go_on(nameserver: str, master: ServiceProcess, slave: ServiceProcess) -> None:
    """Use them until the slave has all that it is to have when it is promoted."""
    async with connected(master.broker) as client, connected(slave.broker) as other:
        await client.until_in_sync(2)
        await commit(client, 7)

        async def is_told() -> bool:
            return await committed(other) == (0, 7)

        assert await eventually(is_told)
    await send_numbers(nameserver, range(8, 18))


async def end(nameserver: str, master: ServiceProcess) -> None:
    """Check that the promoted slave has lost nothing and delivers nothing twice."""
    async with connected(master.broker) as client:
        await client.until_in_sync(2)
        await send_numbers(nameserver, range(20, 28))
        wanted = [*range(18), *range(20, 28)]
        assert await committed(client) == (0, 7)

        async def are_delivered() -> bool:
            return len(await bodies_of(client, TOPIC)) >= len(wanted)

        assert await eventually(are_delivered)
        assert sorted(map(int, await bodies_of(client, TOPIC))) == wanted


def test_broker_name_is_upgraded_slave_first(older: Sequence[str], tmp_path: Path) -> None:
    with running_nameserver(tmp_path / "names") as names, ExitStack() as stack:
        nameserver = names.nameserver

        def member(broker_id: int, launcher: Sequence[str]) -> ServiceProcess:
            words = ("--role", "sync_master", "--broker-id", broker_id)
            folder = tmp_path / f"member-{broker_id}"
            return stack.enter_context(
                running_broker(folder, nameserver, *words, name="a", launcher=launcher)
            )

        master, slave = member(0, older), member(1, older)
        asyncio.run(begin(nameserver, master))
        assert slave.end() == 0
        slave = member(1, TERNMQ)
        asyncio.run(go_on(nameserver, master, slave))
        assert master.end() == 0
        text_of("broker", "promote", "a", "--broker-id", "1", "--yes", "--nameserver", nameserver)
        master = member(0, TERNMQ)
        asyncio.run(end(nameserver, slave))
        assert not errors(slave)
        assert not errors(master)


def test_older_commands_redrive_dead_letters_of_this_broker(
    older: Sequence[str], tmp_path: Path
) -> None:
    def run(*words: str, stdin: str = "") -> str:
        command = [*older, *words, "--nameserver", service.nameserver]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=True
        ).stdout

    async def give_up() -> None:
        use = Use(service.data, service.nameserver)
        async with (
            connected(service.broker) as client,
            PushConsumer(
                GROUP, TOPIC, listener=use.listen, nameserver=use.nameserver, config=CONSUMER
            ),
        ):

            async def has_letter() -> bool:
                with suppress(TopicNotFound):
                    return bool(await bodies_of(client, f"%DLQ%{GROUP}"))
                return False

            assert await eventually(has_letter)

    with running_dev(tmp_path / "dev", *TOLD) as service:
        run("topic", "create", TOPIC, "--queues", "1")
        run("produce", TOPIC, stdin="dead\n")
        asyncio.run(give_up())
        assert "sent" in run("dlq", "redrive", GROUP, "--all")
        printed = run("consume", TOPIC, "--group", "others", "--from", "first", "--max", "2")
        assert printed.count("dead") == 2
