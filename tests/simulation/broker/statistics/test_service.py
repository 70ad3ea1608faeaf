import asyncio
from typing import Any

import pytest

from ternmq_broker.statistics import service
from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, serving


async def ask(client: Client, **asked: str) -> dict[tuple[str, str], Any]:
    reply = await client.call(
        service_methods.DESCRIBE_STATISTICS, admin.DescribeStatisticsRequest(**asked)
    )
    names = [(item.name, item.key) for item in reply.items]
    assert names == sorted(names)
    return {(item.name, item.key): item for item in reply.items}


def test_sends_and_pulls_are_counted_per_minute_hour_and_day() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            sender = await client.open_sender()
            await sender.send(*(sender.record("A", queue_id=row % 2) for row in range(40)))
            await asyncio.sleep(95)
            await client.pull("A", group="G")
            found = await ask(client)
            put, got = found["TOPIC_PUT_NUMS", "A"], found["GROUP_GET_NUMS", "A@G"]
            assert (put.total, got.total) == (40, 20)
            minute, hour, day = put.spans
            assert (minute.sum, hour.sum, day.sum) == (0, 40, 40)
            assert 60 <= minute.seconds < 70 < hour.seconds == day.seconds
            assert hour.rate == pytest.approx(40 / hour.seconds)
            assert (hour.average, got.spans[0].sum) == (20, 20)
            assert found["TOPIC_PUT_LATENCY", "A"].total >= 0
            assert found["BROKER_PUT_NUMS", "DefaultCluster"].total == 40

    run_in_virtual_time(main())


def test_deleted_topic_is_no_longer_counted() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await client.send("A")
            assert await ask(client, key="A")
            await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic="A"))
            assert not await ask(client, key="A")
            assert (await ask(client))["BROKER_PUT_NUMS", "DefaultCluster"].total == 1

    run_in_virtual_time(main())


def test_unknown_statistics_name_is_refused() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            with pytest.raises(RefusedError, match=r"'TOPIC_PUT'.*TOPIC_PUT_NUMS") as caught:
                await ask(client, name="TOPIC_PUT")
            assert caught.value.code == Code.INVALID_PARAMETER

    run_in_virtual_time(main())


def test_oversized_statistics_reply_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_REPLY_BYTES_MAX", 2000)

    async def main() -> None:
        async with serving(topics={"A": 8}) as (_, client):
            sender = await client.open_sender()
            await sender.send(*(sender.record("A", queue_id=row) for row in range(8)))
            with pytest.raises(RefusedError, match="request one name or key"):
                await ask(client)
            assert len(await ask(client, name="QUEUE_PUT_NUMS")) == 8

    run_in_virtual_time(main())
