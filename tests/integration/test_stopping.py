"""Programs that are told to end while they consume: what they finish, and that they end."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support.processes import ServiceProcess, running_dev
from tools.project import ROOT

PAGE = (ROOT / "docs" / "howto" / "stop.md").read_text()
LIMIT_S = 120.0
COUNT = 6


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_dev(tmp_path_factory.mktemp("dev")) as process:
        yield process


def send(dev: ServiceProcess, topic: str, count: int = COUNT) -> None:
    """Send so many messages, whose bodies are their numbers."""
    code = f"""
import ternmq
with ternmq.BlockingProducer("p", nameserver={dev.nameserver!r}) as producer:
    producer.send_many([ternmq.Message({topic!r}, b"%d" % n) for n in range({count})])
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LIMIT_S)


class Program:
    """A program that prints what it is handed. It is killed when it does not end in time."""

    def __init__(self, code: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell lets what it runs in the background ignore Ctrl-C, and that is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self._watchdog = threading.Timer(LIMIT_S, self._process.kill)
        self._watchdog.start()

    def lines(self, count: int) -> list[str]:
        assert self._process.stdout is not None
        return [self._process.stdout.readline().strip() for _ in range(count)]

    def complaints(self, number: signal.Signals) -> Iterator[str]:
        """Send a signal; return the lines that the program then writes to its standard error."""
        self._process.send_signal(number)
        assert self._process.stderr is not None
        return iter(self._process.stderr.readline, "")

    def ended(self, *numbers: signal.Signals) -> tuple[int, str, str]:
        """Send signals; return the exit code and the rest of both outputs."""
        for number in numbers:
            self._process.send_signal(number)
        # Not `communicate`, which passes over what `readline` has read ahead.
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        with self._process.stdout as output, self._process.stderr as errors:
            said, complaints = output.read(), errors.read()
        self._watchdog.cancel()
        return self._process.wait(LIMIT_S), said, complaints


def consumer(dev: ServiceProcess, topic: str, listener: str, *, settings: str = "") -> str:
    """Return the page's program with this listener, which says when it is assigned."""
    (code,) = re.findall(r"^```python\n(import asyncio\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    code = re.sub(r"async def prepare.*?\n\n\n", lambda _: listener, code, flags=re.DOTALL)
    found = 'PushConsumer("kitchen", "orders", listener=prepare):'
    assert found in code
    config = f"ternmq.PushConsumerConfig(consume_from=ternmq.ConsumeFrom.FIRST_OFFSET, {settings})"
    made = f'PushConsumer("{topic}-g", "{topic}", listener=prepare, config={config}, nameserver='
    code = code.replace(found, f"{made}{dev.nameserver!r}) as consumer:")
    waits = "        await asyncio.Event().wait()\n"
    assert waits in code
    return code.replace(
        waits, f"        await consumer.assigned()\n        print('mine\\n', end='')\n{waits}"
    )


ASYNC = """
async def prepare(order):
    print(order.body.decode() + "\\n", end="")
"""
PLAIN = """
def prepare(order):
    print(order.body.decode() + "\\n", end="")
"""
SLOW = """
import threading
told = threading.Event()

def prepare(order):
    print(order.body.decode() + "\\n", end="")
    threading.Event().wait(0.5)
    print("finished\\n", end="")
"""


@pytest.mark.parametrize(
    ("name", "listener", "number"),
    [
        pytest.param("async", ASYNC, signal.SIGTERM, id="async"),
        pytest.param("plain", PLAIN, signal.SIGTERM, id="plain"),
        pytest.param("interrupted", PLAIN, signal.SIGINT, id="interrupted"),
        pytest.param("slow", SLOW, signal.SIGTERM, id="slow"),
    ],
)
def test_consumer_that_is_told_to_end_brings_no_message_again(
    dev: ServiceProcess, name: str, listener: str, number: signal.Signals
) -> None:
    topic = f"orders-{name}"
    send(dev, topic)
    code = consumer(dev, topic, listener)
    first = Program(code)
    before = first.lines(COUNT + 1)  # of the slow one: while all calls run
    assert sorted(before) == [*map(str, range(COUNT)), "mine"]
    returncode, said, complaints = first.ended(number)
    assert (returncode, complaints) == (128 + number, "")
    assert said.split() == (["finished"] * COUNT if name == "slow" else [])

    second = Program(code)
    assert second.lines(1) == ["mine"]
    send(dev, topic, 1)  # nothing else is handed over, neither before it nor with it
    assert second.lines(1) == ["0"]
    assert second.ended(signal.SIGTERM)[1].split() == (["finished"] if name == "slow" else [])


HANGING = """
import threading

def prepare(order):
    print(order.body.decode() + "\\n", end="")
    threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param("alone", "", id="alone"),
        pytest.param("ordered", "order_per_queue=True", id="ordered"),
        pytest.param(
            "all",
            "message_model=ternmq.MessageModel.BROADCASTING, offsets_folder=FOLDER",
            id="broadcasting",
        ),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_hanging_listener_keeps_no_program_from_ending(
    dev: ServiceProcess, tmp_path: Path, name: str, settings: str, number: signal.Signals
) -> None:
    topic = f"hanging-{name}-{number.name}"
    send(dev, topic, 1)
    settings = settings.replace("FOLDER", f"__import__('pathlib').Path({str(tmp_path)!r})")
    code = consumer(dev, topic, HANGING, settings=f"close_wait_s=0.5, {settings}")
    for _ in range(2):  # its message is not committed
        program = Program(code)
        assert sorted(program.lines(2)) == ["0", "mine"]
        returncode, _, complaints = program.ended(number)
        assert returncode == 128 + number
        (line,) = complaints.splitlines()
        assert line.startswith("listener outlives its consumer listener=__main__.prepare calls=1")
        assert "longest_s=" in line
        assert f"queue={topic}@broker-a:" in line


def test_second_signal_ends_a_consumer_at_once(dev: ServiceProcess) -> None:
    send(dev, "twice", 1)
    program = Program(consumer(dev, "twice", HANGING, settings="close_wait_s=1000"))
    assert sorted(program.lines(2)) == ["0", "mine"]
    assert program.ended(signal.SIGTERM, signal.SIGINT)[0] in (-signal.SIGTERM, -signal.SIGINT)


STUBBORN = """
async def prepare(order):
    print(order.body.decode() + "\\n", end="")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
"""


def test_listener_that_catches_its_cancellation_is_named_and_the_second_signal_ends_it(
    dev: ServiceProcess,
) -> None:
    send(dev, "stubborn", 1)
    program = Program(consumer(dev, "stubborn", STUBBORN, settings="close_wait_s=0.1"))
    assert sorted(program.lines(2)) == ["0", "mine"]
    complaints = program.complaints(signal.SIGTERM)
    assert next(complaints).startswith("listener outlives its consumer listener=__main__.prepare")
    named = "listener goes on after it was cancelled listener=__main__.prepare calls=1"
    assert next(complaints).startswith(named)
    assert program.ended(signal.SIGTERM)[0] == -signal.SIGTERM


SENDING = """
import asyncio, ternmq
from ternmq import Message, Producer

async def main():
    async with Producer("p", nameserver="NAMESERVER") as producer:
        await producer.send(Message("enqueued", b"first"))
        for number in range(1000):
            await producer.enqueue(Message("enqueued", b"%d" % number))
        print("enqueued")
        await asyncio.Event().wait()

ternmq.run(main)
"""
HANGING_TRANSACTION = """
import asyncio, threading, ternmq
from ternmq import Message, Resolution, TransactionProducer

def execute(message, argument):
    print("began")
    threading.Event().wait()

async def main():
    async with TransactionProducer(
        "t", execute=execute, check=lambda message: Resolution.UNKNOWN, nameserver="NAMESERVER"
    ) as producer:
        await producer.send(Message("hung", b"x"))

ternmq.run(main())
"""
HANGING_CALLBACK = """
import signal, sys, threading
from ternmq import BlockingPullConsumer

signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))

def hang(queues):
    print("revoked")
    threading.Event().wait()

with BlockingPullConsumer("hung", nameserver="NAMESERVER") as consumer:
    consumer.subscribe("enqueued", on_revoked=hang)
    consumer.assigned()
    print("assigned")
    while True:
        consumer.poll()
"""


def test_producer_that_is_told_to_end_sends_what_is_enqueued(dev: ServiceProcess) -> None:
    program = Program(SENDING.replace("NAMESERVER", dev.nameserver))
    assert program.lines(1) == ["enqueued"]
    assert program.ended(signal.SIGTERM) == (143, "", "")
    code = f"""
import ternmq
with ternmq.BlockingPullConsumer(nameserver={dev.nameserver!r}) as consumer:
    print(sum(consumer.end_offsets(consumer.queues("enqueued")).values()))
"""
    assert Program(code).ended() == (0, "1001\n", "")


def test_hanging_transaction_keeps_no_program_from_ending(dev: ServiceProcess) -> None:
    program = Program(HANGING_TRANSACTION.replace("NAMESERVER", dev.nameserver))
    assert program.lines(1) == ["began"], program.ended()
    returncode, _, complaints = program.ended(signal.SIGTERM)
    assert returncode == 143
    assert "functions=['__main__.execute']" in complaints


def test_hanging_callback_keeps_no_script_from_ending(dev: ServiceProcess) -> None:
    send(dev, "enqueued", 1)
    program = Program(HANGING_CALLBACK.replace("NAMESERVER", dev.nameserver))
    assert program.lines(1) == ["assigned"]
    returncode, said, complaints = program.ended(signal.SIGTERM)
    assert (returncode, said) == (143, "revoked\n")
    assert "callback outlives its consumer group=hung" in complaints
