"""Queue locks while the broker dies and its clock goes back: one good token at most."""

import asyncio

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_model.errors import TernError
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import TopicConfig
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import Connection
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC = "orders"
DAY_MS = 86_400_000


async def lock(connection: Connection, client_id: str, token: int) -> int:
    """Return the token that the client has now; 0 = none."""
    request = groups.LockQueuesRequest(group="G", client_id=client_id)
    request.queues.add(topic=TOPIC, queue_id=0, token=token)
    reply = await connection.call(service_methods.LOCK_QUEUES, request, timeout_s=5)
    return reply.locked[0].token if reply.locked else 0


async def is_good(connection: Connection, token: int) -> bool:
    request = groups.CommitOffsetsRequest(group="G", client_id="any")
    request.offsets.add(topic=TOPIC, queue_id=0, offset=0, lock_token=token)
    reply = await connection.call(service_methods.COMMIT_OFFSETS, request, timeout_s=5)
    return all(each.status.code != ResponseCode.NO_PERMISSION for each in reply.refused)


async def connected(cluster: SimulatedCluster) -> Connection:
    while "a" not in cluster.running:
        cluster.clock_offsets_ms["a"] = cluster.random.choice((0, -DAY_MS, DAY_MS))
        await cluster.start("a")
    address = cluster.broker("a").address
    network = cluster.network.host("member")
    return await network.connect([type(address)("a", address.port)])


@pytest.mark.parametrize("seed", range(4))
def test_lock_tokens_rise_and_only_the_newest_is_valid(seed: int) -> None:
    async def main() -> None:
        async with simulated_cluster(seed, brokers=("a",)) as cluster:
            random = cluster.random
            config = ClientConfig(nameservers=(NAMESERVER,))
            async with AdminClient(client=config, env=cluster.environment("tool")) as admin:
                await admin.create_topic(TopicConfig(TOPIC, 1, 1))
            given: list[int] = []
            own = {"a@1": 0, "b@1": 0, "c@1": 0}
            for _ in range(60):
                connection = await connected(cluster)
                try:
                    who = random.choice(sorted(own))
                    told = random.choice((0, own[who]))
                    own[who] = await lock(connection, who, told)
                    if own[who] and own[who] != told:
                        assert own[who] > max(given, default=0)
                        given.append(own[who])
                    good = [each for each in given if await is_good(connection, each)]
                    assert good in ([], given[-1:])
                except TernError:
                    pass
                await connection.close()
                await asyncio.sleep(random.choice((0, 1, 12)))
                if random.random() < 0.2:
                    (cluster.kill if random.random() < 0.5 else cluster.lose_power)("a")
            assert len(given) > 10
            await (await connected(cluster)).close()

    run_in_virtual_time(main())
