"""Requests that one of several NameServers does not answer."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from ternmq_client.routes.nameservers import NameServers
from ternmq_model.address import Address
from ternmq_model.errors import (
    ClosedError,
    RefusedError,
    RequestTimedOut,
    TopicNotFound,
    refusal,
)
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1.common_pb2 import BrokerData as BrokerPb
from ternmq_remoting.rpc import Connection, Network
from ternmq_remoting.service_methods import GET_CLUSTER, GET_TOPIC_ROUTE, LIST_TOPICS
from ternmq_runtime.service import OwnedTasks
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.scripted_scans import ScriptedClient

SILENT, SOUND = Address("silent", 9876), Address("sound", 9876)
UNTAUGHT, YOUNG = Address("untaught", 9876), Address("young", 9876)


class FakeConnection:
    """To a NameServer that is silent, has not learnt its users, or knows no topic or no broker."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._closed = asyncio.Event()

    async def call(self, rpc: Any, request: Any, *, timeout_s: float) -> Any:
        if self.address == UNTAUGHT:
            raise refusal(ResponseCode.SYSTEM_ERROR, "users exist, and nobody tells them")
        if rpc is GET_CLUSTER:
            known = () if self.address == YOUNG else (BrokerPb(cluster="c", broker_name="b"),)
            return nameserver.GetClusterReply(brokers=known)
        if rpc is GET_TOPIC_ROUTE:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, request.topic)
        if self.address == SOUND:
            return nameserver.ListTopicsReply()
        try:
            async with asyncio.timeout(timeout_s):
                await self._closed.wait()
        except TimeoutError:
            raise RequestTimedOut("no answer in time") from None
        raise ClosedError("the connection is closed")

    async def close(self) -> None:
        self._closed.set()


class FakeNetwork:
    """Reaches the first of the addresses."""

    async def connect(self, addresses: Any, **_options: Any) -> Connection:
        return cast("Connection", FakeConnection(addresses[0]))


@asynccontextmanager
async def nameservers(*addresses: Address) -> AsyncGenerator[NameServers]:
    env = replace(ScriptedClient().env, network=cast("Network", FakeNetwork()))
    async with OwnedTasks() as tasks:
        yield NameServers(env, addresses, tasks, connect_timeout_s=3, request_timeout_s=3)


async def ask(*addresses: Address) -> list[Any]:
    """Ask once, and again a second later, while the first request waits."""
    async with nameservers(*addresses) as asked:
        first = asyncio.create_task(asked.call(LIST_TOPICS, nameserver.ListTopicsRequest()))
        await asyncio.sleep(1)
        second = asyncio.create_task(asked.call(LIST_TOPICS, nameserver.ListTopicsRequest()))
        if not addresses[1:]:
            await asyncio.sleep(1)
            await asked.close()
        return list(await asyncio.gather(first, second, return_exceptions=True))


def test_all_callers_of_a_lost_connection_ask_another_nameserver() -> None:
    async def main() -> None:
        answers = await ask(SILENT, SOUND)
        assert answers == [nameserver.ListTopicsReply()] * 2

    run_in_virtual_time(main())


def test_questions_are_not_repeated_when_the_client_closes() -> None:
    async def main() -> None:
        assert [type(error) for error in await ask(SILENT)] == [ClosedError] * 2

    run_in_virtual_time(main())


def test_nameserver_that_knows_no_users_is_passed_over() -> None:
    async def main() -> None:
        async with nameservers(UNTAUGHT, SOUND) as asked:
            request = nameserver.ListTopicsRequest()
            assert await asked.call(LIST_TOPICS, request) == nameserver.ListTopicsReply()
            with pytest.raises(TopicNotFound):
                await asked.topic_route("orders")
        async with nameservers(UNTAUGHT) as asked:
            with pytest.raises(RefusedError, match="nobody tells them"):
                await asked.call(LIST_TOPICS, nameserver.ListTopicsRequest())
            with pytest.raises(RefusedError, match="nobody tells them"):
                await asked.topic_route("orders")

    run_in_virtual_time(main())


@pytest.mark.parametrize("first", [YOUNG, UNTAUGHT])
def test_brokers_are_those_of_a_nameserver_that_knows_some(first: Address) -> None:
    async def main() -> None:
        async with nameservers(first, SOUND) as asked:
            (found,) = await asked.brokers()
            assert found.broker_name == "b"
        async with nameservers(YOUNG, UNTAUGHT) as asked:
            assert await asked.brokers() == []
        async with nameservers(UNTAUGHT) as asked:
            with pytest.raises(RefusedError, match="nobody tells them"):
                await asked.brokers()

    run_in_virtual_time(main())
