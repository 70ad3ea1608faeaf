"""Clients, role and names of a broker, as a scrape shows them."""

from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import membership, world
from tests.support.metrics_text import scraped
from tests.support.transactions import GROUP, open_producer


def test_clients_are_counted_by_group_and_software() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.open_session("a@1", membership("G", "A"), membership("H", "A"))
            await client.open_session("b@1", membership("G", "A"))
            await open_producer(client)
            shown = await scraped(broker)
            found = {
                each.labels["consumer_group"]: each.value
                for each in shown.all("rocketmq_consumer_connections", protocol_type="grpc")
            }
            assert found == {"G": 2, "H": 1}
            assert shown.sum("rocketmq_producer_connections") == 1, GROUP
            assert shown.sum("rocketmq_consumer_group_number") == 2

    run_in_virtual_time(main())


def test_role_epoch_and_permission_are_those_of_the_term() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            for is_draining, permission in ((False, 6), (True, 4)):
                async with around.broker(draining=is_draining) as broker:
                    client = await around.connect(broker)
                    await client.put_topic(f"A{permission}", 1)
                    shown = await scraped(broker)
                    assert shown.sum("ternmq_broker_is_master") == 1
                    assert shown.sum("ternmq_broker_epoch") == broker.identity.epoch
                    assert shown.sum("rocketmq_broker_permission") == permission
                    assert shown.sum("rocketmq_topic_number") == len(
                        broker.term.environment.tables.topics
                    )

    run_in_virtual_time(main())
