import pytest

from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_runtime.service import OwnedTasks
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, SessionStream, membership, serving


async def join(client: Client, client_id: str, *producers: str) -> SessionStream:
    stream: SessionStream = client.connection.open(service_methods.SESSION)
    hello = groups.Hello(
        client_id=client_id,
        incarnation="1",
        producer_groups=producers,
        consumer_groups=[membership("G", "A")],
    )
    await stream.write(groups.SessionRequest(hello=hello))
    reply = await stream.read()
    assert reply is not None
    assert reply.welcome.status.code == Code.SUCCESS
    return stream


async def answer(stream: SessionStream) -> None:
    while (command := await stream.read()) is not None:
        if command.HasField("report_state"):
            state = groups.RunningState(
                request_id=command.report_state.request_id,
                group=command.report_state.group,
                facts={"workers": "3"},
            )
            await stream.write(groups.SessionRequest(running_state=state))
            return


async def describe(client: Client, client_id: str) -> admin.DescribeConsumerReply:
    request = admin.DescribeConsumerRequest(group="G", client_id=client_id)
    reply: admin.DescribeConsumerReply = await client.call(
        service_methods.DESCRIBE_CONSUMER, request
    )
    return reply


def test_member_reports_its_running_state() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client), OwnedTasks() as tasks:
            stream = await join(client, "a@1")
            tasks.spawn(answer(stream), "answer")
            reply = await describe(client, "a@1")
            assert (reply.state.group, dict(reply.state.facts)) == ("G", {"workers": "3"})

    run_in_virtual_time(main())


def test_absent_or_silent_member_is_not_online() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await join(client, "a@1")
            for client_id, says in (("a@1", "does not answer"), ("b@1", "no live member")):
                with pytest.raises(RefusedError, match=says) as caught:
                    await describe(client, client_id)
                assert caught.value.code == Code.CONSUMER_NOT_ONLINE

    run_in_virtual_time(main())


def test_producers_are_listed_by_group() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await join(client, "b@1", "P", "Q")
            await join(client, "a@1", "P")
            found = await client.call(service_methods.LIST_PRODUCERS, admin.ListProducersRequest())
            assert [(one.group, one.client_id) for one in found.producers] == [
                ("P", "a@1"),
                ("P", "b@1"),
                ("Q", "b@1"),
            ]
            assert all(one.address and one.connected_at_ms for one in found.producers)
            request = admin.ListProducersRequest(page_size=2)
            page = await client.call(service_methods.LIST_PRODUCERS, request)
            assert list(page.producers) == list(found.producers[:2])
            request.page_token = page.next_page_token
            page = await client.call(service_methods.LIST_PRODUCERS, request)
            assert (list(page.producers), page.next_page_token) == ([found.producers[2]], "")
            found = await client.call(
                service_methods.LIST_PRODUCERS, admin.ListProducersRequest(group="Q")
            )
            assert [one.client_id for one in found.producers] == ["b@1"]

    run_in_virtual_time(main())
