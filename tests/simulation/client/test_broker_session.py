"""When a lost Session is opened again, among the other users of its broker's connection."""

import asyncio

import pytest

from ternmq_model.errors import ConnectionLost
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.rpc import Call
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.simulation.client.test_instance import client_of, readers
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_groups import SessionStream, ToySessions
from tests.support.toy_log import TOPIC


def test_lost_session_is_reopened_as_soon_as_the_broker_is_connected() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            await client.join_group(readers(TOPIC), lambda: None)
            for outages in range(1, 6):
                await cluster.stop(cluster.first)
                await asyncio.sleep(20)  # attempts are up to 8 s apart
                await cluster.start(cluster.first)
                await client.broker("broker-0")
                await asyncio.sleep(0.1)
                assert len(cluster.first.sessions.hellos) == 1 + outages

    run_in_virtual_time(main())


def test_broker_that_breaks_sessions_is_dialled_no_more_often_for_its_other_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hellos: list[groups.Hello] = []

    async def broken(_: ToySessions, stream: SessionStream, _call: Call) -> None:
        hello = await stream.read()
        assert hello is not None
        hellos.append(hello.hello)
        raise ConnectionLost("a proxy ends streams")

    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            await client.join_group(readers(TOPIC), lambda: None)
            for _ in range(600):
                await client.broker("broker-0")
                await asyncio.sleep(0.1)
            assert 8 < len(hellos) < 60  # pauses of 4 s on average, shorter ones at first

    monkeypatch.setattr(ToySessions, "session", broken)
    run_in_virtual_time(main())
