import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import running_dev

PROGRAM = """
import signal, subprocess, sys
from ternmq import BlockingProducer, Message

def prepare():
    signal.signal(signal.SIGINT, signal.SIG_IGN)

with BlockingProducer("forks", nameserver=sys.argv[1]) as producer:
    for _ in range(40):
        producer.send(Message("Forks", b""))
        child = subprocess.run([sys.executable, "-V"], preexec_fn=prepare, capture_output=True)
        assert child.returncode == 0, child
print("all began")
"""


def test_forked_programs_start_beside_a_living_client(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with running_dev(tmp_path) as dev:
        found = subprocess.run(
            [sys.executable, program, dev.nameserver],
            capture_output=True,
            text=True,
            check=False,
            timeout=150,
        )
    assert found.stdout == "all began\n", found.stderr
    assert "fork" not in found.stderr


CHILDREN = """
import asyncio, os, signal, sys, threading
from ternmq import *

nameserver, places = sys.argv[1], {"nameserver": sys.argv[1]}

def child(work, *, how=os._exit):
    # Runs `work` in a child and returns what it raised, or "ended".
    there, here = os.pipe()
    process = os.fork()
    if process == 0:
        signal.alarm(60)
        try:
            work()
            said = "ended"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(here, said.encode())
        how(0)
    os.close(here)
    said = os.read(there, 10_000).decode()
    os.close(there)
    _, status = os.waitpid(process, 0)
    assert status == 0, (work, status)
    return said

def send_anew():
    with BlockingProducer("anew", **places) as another:
        another.send(Message("Forks", b"child"))

def refused(said):
    return said.startswith("ClosedError: ") and f"process {os.getpid()}" in said
"""

BLOCKING = (
    CHILDREN
    + """
made = BlockingProducer("made", **places)

def open_what_was_made():
    with made:
        made.send(Message("Forks", b"child"))

assert child(send_anew) == child(open_what_was_made) == "ended"
with BlockingProducer("unused", **places) as unused:  # connected to nothing yet
    assert child(send_anew) == "ended"
    assert refused(child(lambda: unused.send(Message("Forks", b""))))
with made, BlockingPullConsumer("readers", **places) as reader:
    made.send(Message("Forks", b"parent"))
    reader.assign(reader.queues("Forks"))
    for use in (
        lambda: made.send(Message("Forks", b"")),
        lambda: made.enqueue(Message("Forks", b"")),
        lambda: made.flush(),
        lambda: made.__enter__(),
        lambda: reader.poll(),
        lambda: reader.commit(),
        send_anew,
        lambda: asyncio.run(AdminClient(ClientConfig(nameservers=(nameserver,))).__aenter__()),
    ):
        assert refused(child(use)), child(use)
    for number in range(10):
        made.send(Message("Forks", b"parent"))
        assert child(lambda: None, how=sys.exit if number % 2 else os._exit) == "ended"
    assert child(lambda: (made.close(), reader.close()), how=sys.exit) == "ended"
    count = 0
    while count < 11 + 3:
        count += len(reader.poll(timeout_s=60))
    assert made.statistics().brokers["broker-a"].failures == 0
assert refused(child(send_anew))
print("all ended")
"""
)

ON_A_LOOP = (
    CHILDREN
    + """
async def main():
    handed, came = [], asyncio.Event()

    async def take(message):
        handed.append(message.body)
        came.set()

    first = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
    admin = AdminClient(ClientConfig(nameservers=(nameserver,)))
    async with (
        admin,
        Producer("loops", **places) as producer,
        PullConsumer("pullers", **places) as puller,
        PushConsumer("takers", "Forks", listener=take, config=first, **places) as consumer,
    ):
        await producer.send(Message("Forks", b"0"))
        puller.assign(await puller.queues("Forks"))

        def in_child(coroutine):
            # As in a child that begins a loop of its own.
            try:
                coroutine.send(None)
            finally:
                coroutine.close()

        for use in (
            lambda: in_child(producer.send(Message("Forks", b""))),
            lambda: in_child(producer.send_many([Message("Forks", b"")])),
            lambda: in_child(producer.enqueue(Message("Forks", b""))),
            lambda: in_child(puller.poll()),
            lambda: in_child(consumer.commit()),
            lambda: in_child(consumer.assigned()),
            lambda: in_child(admin.topics()),
        ):
            assert refused(child(use)), child(use)
        said = child(lambda: in_child(consumer.__aexit__(None, None, None)))
        assert said in ("StopIteration: None", "StopIteration: "), said
        for number in range(1, 6):
            came.clear()
            assert child(lambda: None) == "ended"
            await producer.send(Message("Forks", b"%d" % number))
            async with asyncio.timeout(60):
                await came.wait()
        assert producer.statistics().brokers["broker-a"].failures == 0

asyncio.run(main())
print("all ended")
"""
)

MULTIPROCESSING = """
import multiprocessing, sys
from ternmq import BlockingProducer, ClosedError, Message

producer = BlockingProducer("pool", nameserver=sys.argv[1])

def send(number):
    try:
        return producer.send(Message("Forks", b"%d" % number)).status.name
    except ClosedError:
        return "ClosedError"

if __name__ == "__main__":
    forks = multiprocessing.get_context("fork")
    with forks.Pool(2, initializer=producer.__enter__) as pool:
        assert set(pool.map(send, range(20))) == {"SEND_OK"}
    with producer:
        assert send(0) == "SEND_OK"
        with forks.Pool(2) as pool:
            assert set(pool.map(send, range(20))) == {"ClosedError"}
        with multiprocessing.get_context("spawn").Pool(1, initializer=print) as pool:
            assert pool.map(abs, [-1]) == [1]
        assert send(1) == "SEND_OK"
    print("all ended")
"""


@pytest.mark.parametrize("code", [BLOCKING, ON_A_LOOP, MULTIPROCESSING])
def test_child_never_hangs_and_never_harms_its_parent(tmp_path: Path, code: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(code)
    with running_dev(tmp_path) as dev:
        found = subprocess.run(
            [sys.executable, program, dev.nameserver],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
    assert "all ended\n" in found.stdout, found.stderr
    assert "Traceback" not in found.stderr
    assert "lost" not in found.stderr
