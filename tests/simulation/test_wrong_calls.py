"""Calls of open clients that cannot be meant: each is refused at once, and the client goes on."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from ternmq import (
    AdminClient,
    IllegalMessage,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    SendManyFailed,
    TopicConfig,
    UsageError,
)
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, simulated_cluster

QUEUE = MessageQueue("orders", "a", 0)


class Clients(NamedTuple):
    producer: Producer
    puller: PullConsumer
    admin: AdminClient


@asynccontextmanager
async def clients(*, is_warm: bool = True) -> AsyncGenerator[Clients]:
    """Open clients; warm ones have sent and read, so that the next calls take the short way."""
    async with simulated_cluster(brokers=("a",)) as cluster:
        await cluster.put_topic("orders", 1)
        async with (
            Producer("shop", nameserver=NAMESERVER, env=cluster.environment("p")) as producer,
            PullConsumer("bills", nameserver=NAMESERVER, env=cluster.environment("c")) as puller,
            AdminClient(nameserver=NAMESERVER, env=cluster.environment("t")) as admin,
        ):
            if is_warm:
                await producer.send(Message("orders", b"first"))
                puller.assign([QUEUE])
                assert len(await puller.poll()) == 1
            yield Clients(producer, puller, admin)


def message(**fields: Any) -> Message:
    given: dict[str, Any] = {"topic": "orders", "body": b""}
    return Message(**(given | fields))


CALLS: dict[str, tuple[Callable[[Clients], Any], str]] = {
    "timeout nan": (lambda to: to.producer.send(message(), timeout_s=float("nan")), "finite"),
    "timeout inf": (lambda to: to.producer.send(message(), timeout_s=float("inf")), "finite"),
    "topics": (lambda to: to.producer.send(message(topic=["orders"])), "must be a string"),
    "topics of many": (
        lambda to: to.producer.send_many([message(topic=["orders"])] * 2),
        "must be a string",
    ),
    "no properties": (lambda to: to.producer.send(message(properties=None)), "properties=None"),
    "no keys": (lambda to: to.producer.send(message(keys=None)), "keys=None"),
    "no flag": (lambda to: to.producer.send(message(flag=None)), "flag None"),
    "request": (lambda to: to.producer.request(message(properties=None)), "properties=None"),
    "no message": (lambda to: to.producer.send(cast("Any", b"1")), "is no message"),
    "seek text": (
        lambda to: to.puller.seek(QUEUE, cast("Any", "5")),
        "'5' is negative or no whole",
    ),
    "seek float": (
        lambda to: to.puller.seek(QUEUE, cast("Any", 1.5)),
        "1.5 is negative or no whole",
    ),
    "topic names": (
        lambda to: to.admin.create_topics(cast("Any", "t")),
        "takes a list of TopicConfig, not 't'",
    ),
    "permissions": (
        lambda to: to.admin.create_topic(TopicConfig("t", permissions=cast("Any", "rw"))),
        "permissions='rw' must be such as Permission.READ",
    ),
    "retention": (
        lambda to: to.admin.create_topic(TopicConfig("t", retention_ms=cast("Any", timedelta(1)))),
        "write int(span.total_seconds() * 1000)",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_call_is_refused_and_the_client_goes_on(name: str) -> None:
    call, told = CALLS[name]

    async def main() -> None:
        async with clients() as to:
            with pytest.raises((UsageError, IllegalMessage, SendManyFailed)) as refused:
                await call(to)
            assert told in str(refused.value)
            await to.producer.send(message(body=b"second"))
            assert [each.body for each in await to.puller.poll()] == [b"second"]

    run_in_virtual_time(main())


ELSEWHERE: dict[str, Callable[[Clients], Any]] = {
    "send": lambda to: to.producer.send(message()),
    "send_many": lambda to: to.producer.send_many([message()]),
    "queues": lambda to: to.puller.queues("orders"),
    "poll": lambda to: to.puller.poll(),
    "topics": lambda to: to.admin.topics(),
}


@pytest.mark.parametrize("is_warm", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize("name", ELSEWHERE)
def test_call_on_another_event_loop_is_refused_instead_of_hanging(name: str, is_warm: bool) -> None:
    async def main() -> None:
        async with clients(is_warm=is_warm) as to:
            if not is_warm:
                to.puller.assign([QUEUE])
            errors: list[BaseException] = []

            async def call() -> None:
                try:
                    async with asyncio.timeout(5):
                        await ELSEWHERE[name](to)
                except Exception as error:
                    errors.append(error)

            thread = threading.Thread(target=lambda: asyncio.run(call()))
            thread.start()
            thread.join()
            assert [type(error) for error in errors] == [UsageError]
            assert "belongs to another event loop" in str(errors[0])

    run_in_virtual_time(main())


def test_numbers_of_numpy_are_taken_where_numbers_are() -> None:
    async def main() -> None:
        async with clients() as to:
            await to.producer.send(message(flag=np.int64(5)), timeout_s=cast("Any", np.float32(3)))
            to.puller.seek(QUEUE, cast("int", np.int64(1)))
            assert [each.flag for each in await to.puller.poll(timeout_s=float("inf"))] == [5]
            await to.puller.seek_to_time(cast("int", np.int64(5)))
            assert len(await to.puller.poll()) == 2

    run_in_virtual_time(main())
