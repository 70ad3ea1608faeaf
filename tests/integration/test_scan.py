"""Scans through real processes: what a queue holds comes whole and once, whatever dies."""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.blocking_client import shared_loop_thread
from ternmq_consumer.scan import (
    BlockingScanner,
    RangeToMeasure,
    ScannedBatch,
    ScanOptions,
)
from ternmq_model.errors import RangeLost, RefusedError
from ternmq_model.message import Message
from ternmq_model.message_batch import decode_records
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import SQL92, Subscription, parse_subscription
from tests.integration.test_replication import member
from tests.support.brokers import connected
from tests.support.console import text_of
from tests.support.processes import ServiceProcess, free_port, running_dev, running_nameserver
from tests.support.spark_data import delete_topic, make_topic, send

pa = pytest.importorskip("pyarrow")

EVER = 1 << 40


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_dev(tmp_path_factory.mktemp("dev")) as running:
        yield running


@pytest.fixture(scope="module")
def scanner(dev: ServiceProcess) -> Generator[BlockingScanner]:
    with BlockingScanner(dev.nameserver) as opened:
        yield opened


def rows_of(batch: ScannedBatch) -> list[dict[str, Any]]:
    """Return a batch's rows, and that they are of it alone."""
    if not batch.data:
        return []
    schema = pa.ipc.read_schema(pa.py_buffer(batch.schema))
    rows: list[dict[str, Any]] = pa.ipc.read_record_batch(
        pa.py_buffer(batch.data), schema
    ).to_pylist()
    assert all(row["queueOffset"] < batch.next_offset for row in rows)
    return rows


def scan(
    scanner: BlockingScanner, queue: MessageQueue, begin: int, end: int, **options: Any
) -> list[dict[str, Any]]:
    with scanner.scan(queue, begin, end, ScanOptions(**options)) as batches:
        return [row for batch in batches for row in rows_of(batch)]


def end_of(scanner: BlockingScanner, queue: MessageQueue) -> int:
    return scanner.measure([RangeToMeasure(queue, 0, EVER)])[0].end


def pull(
    scanner: BlockingScanner,
    queue: MessageQueue,
    begin: int,
    end: int,
    subscription: Subscription | None = None,
) -> list[StoredMessage]:
    with scanner.pull(queue, begin, end, ScanOptions(subscription=subscription)) as pulled:
        return [
            message
            for some in pulled
            for message in decode_records(
                some.records, np.frombuffer(some.record_sizes, dtype="<i4"), queue
            )
        ]


def told(messages: list[StoredMessage]) -> list[tuple[Any, ...]]:
    return [
        (each.queue_offset, each.message_id, each.body, each.tags or None, list(each.keys))
        for each in messages
    ]


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (row["queueOffset"], row["msgId"], row["body"], row["tags"], row["keys"]) for row in rows
    ]


def fill(nameserver: str, topic: str, count: int, *, body_bytes: int = 20) -> None:
    """Send messages to the one queue of a topic, with tags, keys and numbers."""
    make_topic(nameserver, topic, 1)
    chance = Random(count)  # what can be compressed would be
    send(
        nameserver,
        [
            Message(
                topic,
                chance.randbytes(body_bytes),
                tags=("", "a", "b")[number % 3],
                keys=(f"k{number}", f"shared{number % 7}") if number % 5 else (),
                properties={"n": str(number)},
            )
            for number in range(count)
        ],
    )


def test_scan_agrees_with_pulling_and_filtering(
    dev: ServiceProcess, scanner: BlockingScanner
) -> None:
    fill(dev.nameserver, "Filters", 1_000)
    queue = MessageQueue("Filters", dev.broker_name, 0)
    messages = pull(scanner, queue, 0, 1_000)
    assert [each.queue_offset for each in messages] == list(range(1_000))
    assert shown(scan(scanner, queue, 0, 1_000, batch_rows_max=64)) == told(messages)
    assert shown(scan(scanner, queue, 37, 612)) == told(messages[37:612])
    assert scan(scanner, queue, 5, 5) == []

    tags = parse_subscription("Filters", "a || c")
    sql = parse_subscription("Filters", "n > 400 AND TAGS = 'b'", SQL92)
    middle, later = messages[300].stored_at_ms, messages[900].stored_at_ms
    filters: list[tuple[dict[str, Any], Callable[[StoredMessage], bool]]] = [
        ({"subscription": tags}, lambda each: each.tags == "a"),
        ({"subscription": sql}, lambda each: sql.matches(each.properties)),
        ({"keys": ("shared3", "k8")}, lambda each: {"shared3", "k8"} & set(each.keys) != set()),
        (
            {"stored_from_ms": middle, "stored_before_ms": later},
            lambda each: middle <= each.stored_at_ms < later,
        ),
        (
            {"subscription": tags, "keys": ("shared3",), "stored_from_ms": middle},
            lambda each: (
                each.tags == "a" and "shared3" in each.keys and each.stored_at_ms >= middle
            ),
        ),
    ]
    for options, is_wanted in filters:
        expected = told([each for each in messages if is_wanted(each)])
        assert shown(scan(scanner, queue, 0, 1_000, batch_rows_max=50, **options)) == expected
    for wanted in (tags, sql):
        pulled = pull(scanner, queue, 0, 1_000, wanted)
        assert [each.queue_offset for each in pulled if wanted.matches(each.properties)] == [
            row["queueOffset"] for row in scan(scanner, queue, 0, 1_000, subscription=wanted)
        ]


def test_scanned_columns_come_in_requested_order(
    dev: ServiceProcess, scanner: BlockingScanner
) -> None:
    fill(dev.nameserver, "Columns", 10)
    queue = MessageQueue("Columns", dev.broker_name, 0)
    with scanner.scan(queue, 0, 10, ScanOptions(columns=("body", "queueOffset"))) as batches:
        (batch,) = [each for each in batches if each.data]
    schema = pa.ipc.read_schema(pa.py_buffer(batch.schema))
    assert schema.names == ["body", "queueOffset"]
    with pytest.raises(RefusedError, match="'flag'"):
        scan(scanner, queue, 0, 10, columns=("flag",))


def test_measured_bytes_equal_those_of_the_records(
    dev: ServiceProcess, scanner: BlockingScanner
) -> None:
    fill(dev.nameserver, "Measured", 300)
    queue = MessageQueue("Measured", dev.broker_name, 0)
    with scanner.pull(queue, 0, 300) as pulled:
        length = sum(len(some.records) for some in pulled)
    assert scanner.measure([RangeToMeasure(queue, 0, EVER)]) == [(300, length)]


def test_closed_iterator_reads_no_more(dev: ServiceProcess, scanner: BlockingScanner) -> None:
    fill(dev.nameserver, "Early", 1_000, body_bytes=10_000)
    queue = MessageQueue("Early", dev.broker_name, 0)
    with scanner.scan(queue, 0, 1_000, ScanOptions(batch_rows_max=10)) as batches:
        assert len(rows_of(next(batches))) == 10
    assert list(batches) == []
    batches.close()
    assert len(scan(scanner, queue, 0, 1_000)) == 1_000


@pytest.mark.parametrize("by_scan", [True, False])
def test_range_of_a_topic_created_again_is_lost_although_the_topic_has_its_offsets(
    dev: ServiceProcess, scanner: BlockingScanner, by_scan: bool
) -> None:
    topic = f"CreatedAgain{by_scan}"
    fill(dev.nameserver, topic, 3)
    queue = MessageQueue(topic, dev.broker_name, 0)

    def read(created_log_offset: int) -> int:
        options: dict[str, Any] = {
            "created_log_offset": created_log_offset,
            "retry_timeout_s": 0.5,
        }
        if by_scan:
            return len(scan(scanner, queue, 0, 3, **options))
        with scanner.pull(queue, 0, 3, ScanOptions(**options)) as pulled:
            return sum(len(some.record_sizes) // 4 for some in pulled)

    known = created_at(dev.nameserver, topic)
    assert read(known) == 3
    delete_topic(dev.nameserver, topic)
    fill(dev.nameserver, topic, 5)
    with pytest.raises(RangeLost, match="was deleted and created again"):
        read(known)
    assert created_at(dev.nameserver, topic) > known
    assert read(created_at(dev.nameserver, topic)) == 3


def created_at(nameserver: str, topic: str) -> int:
    """Return where the log ended when a topic was created."""

    async def ask() -> int:
        async with AdminClient(nameserver=nameserver) as admin:
            (created,) = (await admin.describe_topic(topic)).created
        assert created.at_ms > 0
        assert created.log_offset is not None
        return created.log_offset

    return shared_loop_thread().run(ask())


def test_killed_scan_process_costs_no_row(dev: ServiceProcess, scanner: BlockingScanner) -> None:
    fill(dev.nameserver, "Killed", 2_000, body_bytes=10_000)
    queue = MessageQueue("Killed", dev.broker_name, 0)
    offsets: list[int] = []
    kills = 0
    with scanner.scan(queue, 0, 2_000, ScanOptions(batch_rows_max=20)) as batches:
        for batch in batches:
            offsets += [row["queueOffset"] for row in rows_of(batch)]
            if kills < 2 and len(offsets) >= 200 * (kills + 1):
                for child in children_of(dev.process.pid):
                    os.kill(child, signal.SIGKILL)
                kills += 1
    assert kills == 2
    assert offsets == list(range(2_000))


def test_killed_broker_leaves_no_scan_process_and_scan_resumes_on_return(
    tmp_path: Path,
) -> None:
    port = free_port()
    offsets: list[int] = []
    with BlockingScanner(f"127.0.0.1:{port}") as scanner:
        with running_dev(tmp_path, port_nameserver=port) as dev:
            fill(dev.nameserver, "Restart", 2_000, body_bytes=10_000)
            queue = MessageQueue("Restart", dev.broker_name, 0)
            batches = scanner.scan(queue, 0, 2_000, ScanOptions(batch_rows_max=20))
            offsets += [row["queueOffset"] for row in rows_of(next(batches))]
            (child,) = children_of(dev.process.pid)
            dev.kill()
        with running_dev(tmp_path, port_nameserver=port):
            for batch in batches:
                offsets += [row["queueOffset"] for row in rows_of(batch)]
        assert offsets == list(range(2_000))
        assert not is_alive(child)


def test_scan_continues_at_a_slave_and_after_its_promotion(tmp_path: Path) -> None:
    with ExitStack() as stack:
        nameserver = stack.enter_context(running_nameserver(tmp_path / "ns")).nameserver
        master, slave = (
            stack.enter_context(member(tmp_path / role, nameserver, role, broker_id))
            for role, broker_id in (("sync_master", 0), ("slave", 1))
        )
        scanner = stack.enter_context(BlockingScanner(nameserver))
        shared_loop_thread().run(followed(master.broker))
        fill(nameserver, "Moved", 1_000, body_bytes=10_000)
        queue, options = MessageQueue("Moved", "a", 0), ScanOptions(batch_rows_max=20)

        def read_while(happens: Callable[[], object]) -> list[int]:
            batches = scanner.scan(queue, 0, 1_000, options)
            offsets = [row["queueOffset"] for row in rows_of(next(batches))]
            happens()
            return offsets + [row["queueOffset"] for batch in batches for row in rows_of(batch)]

        assert read_while(master.process.kill) == list(range(1_000))
        assert children_of(slave.process.pid)
        promote = ("broker", "promote", "a", "--broker-id", "1", "--yes")
        command = (*promote, "--nameserver", nameserver)
        assert read_while(lambda: text_of(*command)) == list(range(1_000))


def test_retention_waits_for_a_scan_and_overtakes_a_stalled_one(tmp_path: Path) -> None:
    settings = {
        "TERNMQ_STORE__FILE_RESERVED_HOURS": "0",
        "TERNMQ_STORE__COMMIT_LOG_FILE_BYTES": str(1 << 20),
        "TERNMQ_STORE__DELETE_PAUSE_MS": "0",
        "TERNMQ_BROKER__SCAN_STALL_MS": "3000",
    }
    with (
        running_dev(tmp_path, env={**os.environ, **settings}) as dev,
        BlockingScanner(dev.nameserver) as scanner,
    ):
        fill(dev.nameserver, "Gone", 3_000, body_bytes=10_000)
        queue = MessageQueue("Gone", dev.broker_name, 0)
        with scanner.scan(queue, 0, 3_000, ScanOptions(batch_rows_max=20)) as batches:
            offsets = [row["queueOffset"] for row in rows_of(next(batches))]
            clean(dev)
            for batch in batches:
                offsets += [row["queueOffset"] for row in rows_of(batch)]
        assert offsets == list(range(3_000))

        fill(dev.nameserver, "Gone", 3_000, body_bytes=10_000)
        end = end_of(scanner, queue)
        begin = end - 3_000
        with scanner.scan(queue, begin, end, ScanOptions(batch_rows_max=20)) as batches:
            offsets = [row["queueOffset"] for row in rows_of(next(batches))]
            while first_of(scanner, queue, end) <= end - 500:
                clean(dev)
            with pytest.raises(RangeLost) as caught:
                offsets.extend(row["queueOffset"] for batch in batches for row in rows_of(batch))
        error = caught.value
        assert offsets == list(range(begin, error.wanted_offset))
        assert (error.topic, error.broker_name, error.queue_id) == queue
        assert error.first_offset > error.wanted_offset


def test_broker_without_arrow_refuses_scans_and_serves_pulls(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyarrow'] = None\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with running_dev(tmp_path, env=env) as dev, BlockingScanner(dev.nameserver) as scanner:
        fill(dev.nameserver, "Plain", 100)
        queue = MessageQueue("Plain", dev.broker_name, 0)
        with pytest.raises(RefusedError, match="pyarrow") as caught:
            scan(scanner, queue, 0, 100)
        assert caught.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert len(pull(scanner, queue, 0, 100)) == 100


async def followed(master: str) -> None:
    """Wait until a master has a slave that counts."""
    async with connected(master) as client:
        await client.until_in_sync(2)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def first_of(scanner: BlockingScanner, queue: MessageQueue, end: int) -> int:
    """Return the first message that is measured: no earlier one is kept."""
    begin, last = 0, end
    while begin < last:
        middle = (begin + last + 1) // 2
        if scanner.measure([RangeToMeasure(queue, 0, middle)])[0].bytes:
            last = middle - 1
        else:
            begin = middle
    return begin


def clean(dev: ServiceProcess) -> None:
    """Let the broker delete what has expired."""

    async def ask() -> None:
        async with AdminClient(nameserver=dev.nameserver) as operator:
            await operator.clean_store(dev.broker_name)

    shared_loop_thread().run(ask())
