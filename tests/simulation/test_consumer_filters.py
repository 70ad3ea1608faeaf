"""Groups that take some messages of a topic, while brokers come and go, on virtual time."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ternmq_consumer.config import ConsumeFrom, PullConsumerConfig, PushConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_consumer.subscriptions import SubscriptionExpression
from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode
from ternmq_model.subscription import sql
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE
from tests.support.history import GroupRules
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC = "orders"
FROM_FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


def consumer(
    cluster: SimulatedCluster,
    wanted: SubscriptionExpression,
    *,
    fails: set[str],
    host: str = "consumer",
) -> PushConsumer:
    """Return a consumer that finishes what it asked for, some of it at the second attempt."""

    def is_finished(message: Any) -> bool:
        name = str(message.body)
        is_first = message.reconsume_times == 0 and name not in fails
        fails.add(name)
        return not is_first or cluster.random.random() < 0.8

    return PushConsumer(
        "readers",
        {TOPIC: wanted},
        listener=cluster.listener("readers", wants=is_finished),
        nameserver=NAMESERVER,
        config=FROM_FIRST,
        env=cluster.environment(host),
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("has_bit_maps", [False, True])
@pytest.mark.parametrize("kind", ["sql", "tag"])
def test_group_gets_every_matching_message_and_no_other(
    seed: int, has_bit_maps: bool, kind: str
) -> None:
    wanted: SubscriptionExpression = sql("number > 6 AND kind = 'Aa'") if kind == "sql" else "Aa"
    settings: dict[str, Any] = {"filter_bit_maps_enabled": has_bit_maps}
    store = replace(SMALL_STORE, consume_queue_ext_enabled=has_bit_maps)

    async def main() -> None:
        async with (
            simulated_cluster(seed, store=store, retry_filter_enabled=True, **settings) as cluster,
            cluster.producer() as producer,
        ):
            unwanted: set[str] = set()
            fails: set[str] = set()

            async def send(count: int) -> None:
                sending: list[asyncio.Task[Any]] = []
                for _ in range(count):
                    name, number = cluster.next_id(), cluster.random.randrange(10)
                    tag = cluster.random.choice(("Aa", "BB"))  # of one hash code
                    if tag == "BB" or (kind == "sql" and number <= 6):
                        unwanted.add(name)
                    properties = {"number": str(number), "kind": tag}
                    message = cluster.send(producer, TOPIC, name, tags=tag, properties=properties)
                    sending.append(cluster.tasks.spawn(message, f"send {name}"))
                await asyncio.wait(sending)

            await send(40)
            async with consumer(cluster, wanted, fails=fails) as reading:
                await reading.assigned()
                for _ in range(3):
                    await send(40)
                    name = cluster.random.choice(cluster.running)
                    cluster.kill(name)
                    await asyncio.sleep(cluster.random.random() * 2)
                    await cluster.start(name)
                await send(40)
                await cluster.consumed("readers", but=frozenset(unwanted))
            cluster.history.stored_twice_allowed = True
            await cluster.scan(TOPIC)
            rules = GroupRules("readers", frozenset({TOPIC}), unwanted=frozenset(unwanted))
            cluster.history.check([rules], seed=seed)

    run_in_virtual_time(main())


def test_sql_filter_is_refused_by_name_when_disabled() -> None:
    async def main() -> None:
        async with (
            simulated_cluster(property_filter_enabled=False) as cluster,
            cluster.producer() as producer,
        ):
            await cluster.send(producer, TOPIC)
            with pytest.raises(RefusedError, match=r"broker\.property_filter_enabled") as caught:
                async with consumer(cluster, sql("a = 1"), fails=set()):
                    pass
            assert caught.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            async with PullConsumer(
                nameserver=NAMESERVER,
                config=PullConsumerConfig(),
                env=cluster.environment("puller"),
            ) as puller:
                puller.assign(await puller.queues(TOPIC), sql("a = 1"))
                with pytest.raises(RefusedError, match=r"broker\.property_filter_enabled"):
                    await puller.poll(timeout_s=5)

    run_in_virtual_time(main())
