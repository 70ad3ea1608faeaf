import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ternmq_client.instance import ClientInstance
from ternmq_client.internal_producer import InternalProducer
from ternmq_model.errors import (
    BrokerBusy,
    MessageRefused,
    RequestTimedOut,
    TernError,
    TopicNotFound,
    refusal,
)
from ternmq_model.message import SendStatus
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode as Code
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.records import STORE_HOST
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC


def answers(*answers: TernError | int, delay_s: float = 0) -> Callable[[object], Awaitable[int]]:
    """Return what answers sends with `answers`, one after the other, then stores."""
    left = list(answers)

    async def answer(_: object) -> int:
        await asyncio.sleep(delay_s)
        told = left.pop(0) if left else 0
        if isinstance(told, TernError):
            raise told
        return told

    return answer


def client_of(cluster: ToyCluster) -> ClientInstance:
    return cluster.producer().client


def test_message_goes_to_the_named_broker_with_all_its_properties() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster:
            second = cluster.brokers["broker-1"]
            second.append(2, b"before")
            async with client_of(cluster) as client:
                await client.routes.route(TOPIC)
                result = await InternalProducer(client).send(
                    TOPIC, b"b", {"DELAY": "3"}, broker_name="broker-1", queue_id=2, timeout_s=1
                )
            assert result.queue == MessageQueue(TOPIC, "broker-1", 2)
            assert (result.status, result.message_id) == (SendStatus.SEND_OK, "KEY")
            _, stored = second.messages(result.queue)
            assert (result.queue_offset, result.physical_offset) == (1, stored.physical_offset)
            assert stored.physical_offset > 0
            assert result.store_host == STORE_HOST
            (request,) = second.sending.requests
            assert dict(request.properties) == {"DELAY": "3"}
            assert request.HasField("auto_create")
            assert not request.auto_create.template_topic

    run_in_virtual_time(main())


def test_stored_but_unconfirmed_message_is_a_result() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster:
            cluster.first.sending.answer_request = answers(int(Code.FLUSH_DISK_TIMEOUT))
            async with client_of(cluster) as client:
                result = await InternalProducer(client).send(TOPIC, b"", {}, timeout_s=1)
            assert result.status is SendStatus.FLUSH_DISK_TIMEOUT

    run_in_virtual_time(main())


def test_another_broker_is_tried_while_nothing_can_have_been_stored() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster:
            both = list(cluster.brokers.values())
            for each in both:
                each.sending.answer_request = answers(refusal(Code.SYSTEM_BUSY, "busy"))
            async with client_of(cluster) as client:
                with pytest.raises(BrokerBusy):
                    await InternalProducer(client).send(TOPIC, b"", {}, timeout_s=1)
                assert [len(each.sending.requests) for each in both] == [1, 1]
                both[0].sending.answer_request = answers(refusal(Code.SYSTEM_BUSY, "busy"))
                result = await InternalProducer(client).send(TOPIC, b"", {}, timeout_s=1)
                assert result.queue.broker_name == "broker-1"

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    "answer",
    [
        refusal(Code.MESSAGE_ILLEGAL, "no"),
        refusal(Code.SYSTEM_BUSY, "in doubt", may_have_happened=True),
    ],
)
def test_illegal_or_doubtful_message_is_not_sent_again(answer: TernError) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster:
            both = list(cluster.brokers.values())
            for each in both:
                each.sending.answer_request = answers(answer)
            async with client_of(cluster) as client:
                with pytest.raises((MessageRefused, BrokerBusy)) as caught:
                    await InternalProducer(client).send(TOPIC, b"", {}, timeout_s=1)
            assert caught.value.may_have_happened is answer.may_have_happened
            assert sum(len(each.sending.requests) for each in both) == 1

    run_in_virtual_time(main())


def test_unknown_topic_and_silent_broker_are_reported() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster:
            cluster.first.sending.answer_request = answers(delay_s=2)
            async with client_of(cluster) as client:
                with pytest.raises(TopicNotFound):
                    await InternalProducer(client).send("none", b"", {}, timeout_s=1)
                with pytest.raises(RequestTimedOut) as caught:
                    await InternalProducer(client).send(TOPIC, b"", {}, timeout_s=1)
                assert caught.value.may_have_happened

    run_in_virtual_time(main())
