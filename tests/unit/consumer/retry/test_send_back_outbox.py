"""Giving messages back to their broker."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

import pytest

from ternmq_consumer.retry.send_back_outbox import (
    REQUEST_MESSAGES_MAX,
    SendBackBatch,
    SendBackOutbox,
    failed_message,
)
from ternmq_model.errors import ConnectionLost, refusal
from ternmq_model.queue import MessageQueue
from ternmq_model.redelivered_message import tried_again
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import SEND_BACK
from ternmq_runtime.service import OwnedTasks
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.handed_out import QUEUE, message_at, of_offsets


class Broker:
    """A broker that takes a tenth of a second, and a client that knows it."""

    def __init__(self) -> None:
        self.requests: list[groups.SendBackRequest] = []
        self.error: Exception | None = None
        self.codes: dict[int, int] = {}
        self.outcomes_max = REQUEST_MESSAGES_MAX
        self.confirmed = 0
        self.knows_seeks = True
        self.told_again = 0
        self.copies: list[tuple[int, int]] = []
        self.copied: set[int] = set()
        self._running = 0

    async def broker(self, broker_name: str, broker_id: int = 0) -> Connection:
        assert broker_name == QUEUE.broker_name
        return cast("Connection", self)

    def forget(self, broker_name: str, connection: Connection, broker_id: int = 0) -> None:
        raise AssertionError("does not happen here")

    async def call(self, rpc: object, request: Any, *, timeout_s: float) -> Any:
        assert rpc is SEND_BACK
        assert timeout_s == 3
        assert not self._running, "one request at a time"
        self._running += 1
        self.requests.append(request)
        await asyncio.sleep(0.1)
        self._running -= 1
        if self.error is not None:
            raise self.error
        outcomes = [
            common.Status(code=self.codes.get(failed.queue_offset, 0), remark="why")
            for failed in request.messages
        ]
        return groups.SendBackReply(outcomes=outcomes[: self.outcomes_max])

    async def versions(self, queues: Iterable[MessageQueue]) -> Mapping[MessageQueue, int]:
        return dict.fromkeys(queues, 7) if self.knows_seeks else {}

    def resend_offsets(self, broker_name: str) -> None:
        assert broker_name == QUEUE.broker_name
        self.told_again += 1

    async def send_copy(self, message: StoredMessage, level: int) -> bool:
        self.copies.append((message.queue_offset, level))
        return message.queue_offset in self.copied

    def confirm(self, broker_name: str, count: int) -> None:
        assert broker_name == QUEUE.broker_name
        self.confirmed += count


class Answers:
    """Lots that were answered."""

    def __init__(self) -> None:
        self.batches: list[SendBackBatch] = []

    def batch(self, *offsets: int, level: int = 0, is_wanted: bool = True) -> SendBackBatch:
        messages = [message_at(offset) for offset in offsets]
        return SendBackBatch(
            QUEUE,
            messages,
            [level] * len(messages),
            is_wanted=lambda: is_wanted,
            on_answer=self.batches.append,
            token=5,
        )


def play(test: Callable[[Broker, SendBackOutbox, Answers], Awaitable[None]]) -> None:
    async def main() -> None:
        broker = Broker()
        async with OwnedTasks() as tasks:
            backs = SendBackOutbox(
                broker,
                tasks,
                group="g",
                client_id="me",
                timeout_s=3,
                retries_max=-1,
                offsets=broker,
                on_confirmed=broker.confirm,
                send_copy=broker.send_copy,
            )
            await test(broker, backs, Answers())

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("level", "retries_max", "said_level", "said_max"),
    [(0, -1, 0, 0), (5, -1, 5, 0), (0, 3, 0, 3), (5, 0, -1, 0), (-1, 3, -1, 3)],
)
def test_send_back_carries_place_delay_and_limit(
    level: int, retries_max: int, said_level: int, said_max: int
) -> None:
    message = tried_again(tried_again(message_at(4)))
    told = failed_message(message, level, retries_max=retries_max, token=9, version=7)
    assert told == groups.FailedMessage(
        physical_offset=4000,
        message_id="id-4",
        topic=QUEUE.topic,
        queue_id=QUEUE.queue_id,
        queue_offset=4,
        delay_level=said_level,
        attempts_max=said_max,
        lock_token=9,
        reconsume_times=2,
        version=7,
    )


def test_messages_added_during_a_request_form_the_next_one() -> None:
    async def test(broker: Broker, backs: SendBackOutbox, answers: Answers) -> None:
        backs.add(answers.batch(0))
        await asyncio.sleep(0.05)
        backs.add(answers.batch(1, 2))
        backs.add(answers.batch(3))
        assert not answers.batches
        await asyncio.sleep(0.3)
        sent = [of_offsets(list(request.messages)) for request in broker.requests]
        assert sent == [[0], [1, 2, 3]]
        assert {each.version for request in broker.requests for each in request.messages} == {7}
        assert [batch.refused for batch in answers.batches] == [[], [], []]
        assert broker.confirmed == 4
        backs.add(answers.batch(4))
        await asyncio.sleep(0.2)
        assert len(answers.batches) == 4

    play(test)


def test_request_holds_at_most_the_contracts_limit() -> None:
    async def test(broker: Broker, backs: SendBackOutbox, answers: Answers) -> None:
        backs.add(answers.batch(*range(2500)))
        await asyncio.sleep(1)
        assert [len(request.messages) for request in broker.requests] == [1024, 1024, 452]
        assert len(answers.batches) == 1

    play(test)


@pytest.mark.parametrize(
    "error", [ConnectionLost("cut"), refusal(ResponseCode.SYSTEM_BUSY, "busy")]
)
def test_unanswered_messages_do_not_count_as_sent_back(error: Exception) -> None:
    async def test(broker: Broker, backs: SendBackOutbox, answers: Answers) -> None:
        broker.error = error
        backs.add(answers.batch(0, 1))
        await asyncio.sleep(1)
        (batch,) = answers.batches
        assert of_offsets(batch.refused) == [0, 1]
        assert broker.confirmed == 0

    play(test)


def test_each_message_has_its_own_answer_and_a_missing_one_is_a_refusal() -> None:
    async def test(broker: Broker, backs: SendBackOutbox, answers: Answers) -> None:
        broker.codes = {1: ResponseCode.SYSTEM_ERROR}
        broker.outcomes_max = 3
        backs.add(answers.batch(0, 1, 2, 3))
        await asyncio.sleep(1)
        (batch,) = answers.batches
        assert of_offsets(batch.refused) == [1, 3]
        assert not batch.is_fenced
        assert broker.confirmed == 2
        broker.codes = {4: ResponseCode.NO_PERMISSION}
        backs.add(answers.batch(4))
        await asyncio.sleep(1)
        assert answers.batches[1].is_fenced

    play(test)


def test_message_stays_until_its_broker_knows_the_seek() -> None:
    async def test(broker: Broker, backs: SendBackOutbox, answers: Answers) -> None:
        broker.knows_seeks = False
        backs.add(answers.batch(0))
        await asyncio.sleep(1)
        assert of_offsets(answers.batches[0].refused) == [0]
        assert not broker.requests
        broker.knows_seeks = True
        broker.codes = {1: ResponseCode.PULL_OFFSET_MOVED}
        backs.add(answers.batch(0, 1))
        await asyncio.sleep(1)
        assert of_offsets(answers.batches[1].refused) == [1]
        assert broker.told_again == 1

    play(test)


def test_message_without_a_record_is_sent_back_as_a_copy() -> None:
    async def test(broker: Broker, backs: SendBackOutbox, answers: Answers) -> None:
        broker.codes = dict.fromkeys((1, 2), int(ResponseCode.QUERY_NOT_FOUND))
        broker.copied = {1}
        backs.add(answers.batch(0, 1, 2, level=4))
        await asyncio.sleep(1)
        (batch,) = answers.batches
        assert of_offsets(batch.refused) == [2]
        assert broker.copies == [(1, 4), (2, 4)]
        assert broker.confirmed == 2

    play(test)


def test_unwanted_messages_are_not_sent_back() -> None:
    async def test(broker: Broker, backs: SendBackOutbox, answers: Answers) -> None:
        backs.add(answers.batch(0, is_wanted=False))
        await asyncio.sleep(1)
        assert of_offsets(answers.batches[0].refused) == [0]
        assert not broker.requests

    play(test)
