"""Transactions that Apache RocketMQ left open, brought to their end here."""

import asyncio
from pathlib import Path

from ternmq_model.names import CHECK_MAX_TOPIC, HALF_TOPIC
from ternmq_model.response_code import ResponseCode
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_testing.memory.memory_files import Node
from ternmq_testing.time.virtual_time import EPOCH_MS, run_in_virtual_time
from tests.support.brokers import Client, world
from tests.support.rocketmq import copy_in, manifest, unpack_store
from tests.support.transactions import COMMIT, ROLLBACK, Begun, end, lying, open_producer, question

STORE = StoreConfig(
    commit_log_file_bytes=65_536, consume_queue_file_units=100, index_slots=500, index_entries=400
)
DATA = Path("/broker")


async def bodies(client: Client, topic: str, queues: int) -> list[bytes]:
    """Return every body in a topic."""
    return [m.body for queue_id in range(queues) for m in await lying(client, topic, queue_id)]


def test_open_rocketmq_transactions_are_checked_and_ended_ones_stay_ended(tmp_path: Path) -> None:
    root = unpack_store(tmp_path)
    records = list(manifest(root, "record"))
    halves = [line for line in records if line["topic"] == HALF_TOPIC]
    messages = [line for line in records if line["preparedTransactionOffset"]]
    group = halves[0]["properties"]["PGROUP"]
    topic = halves[0]["properties"]["REAL_TOPIC"]
    last_ms = max(line["storeTimestamp"] for line in records)
    queues = 1 + max(line["queueId"] for line in manifest(root, "unit") if line["topic"] == topic)

    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            around.store_config = STORE
            around.clock.wall_offset_ms = last_ms - EPOCH_MS
            copy_in(around.files, root, DATA)
            async with around.broker() as broker:
                client = await around.connect(broker)
                before = await bodies(client, topic, queues)
                session = await open_producer(client, group=group)
                asked = [await question(session) for _ in range(5)]
                places = {told.transaction_offset for told in asked}
                assert places == {line["physicalOffset"] for line in halves[-5:]}
                assert {told.check for told in asked} == {2}
                begun = [Begun("", each.message_id, each.transaction_offset) for each in asked]
                kept, dropped = begun[:3], begun[3:]
                replies = await end(
                    client,
                    *(each.end(COMMIT, group=group) for each in kept),
                    *(each.end(ROLLBACK, group=group) for each in dropped),
                )
                assert [reply.status.code for reply in replies] == [0] * 5
                await asyncio.sleep(100)
                after = await bodies(client, topic, queues)
                assert len(after) == len(before) + 3
                ended = messages[0]
                old = Begun("", ended["properties"]["UNIQ_KEY"], ended["preparedTransactionOffset"])
                (again,) = await end(client, old.end(COMMIT, group=group))
                assert (again.queue_id, again.queue_offset) == (
                    ended["queueId"],
                    ended["queueOffset"],
                )
                (other,) = await end(client, old.end(ROLLBACK, group=group))
                assert other.status.code == ResponseCode.ILLEGAL_OPERATION
                assert await bodies(client, topic, queues) == after
                assert broker_has_no(around.files.nodes, CHECK_MAX_TOPIC)
                await client.connection.close()

    run_in_virtual_time(main())


def broker_has_no(nodes: dict[Path, Node], topic: str) -> bool:
    """Tell whether no queue of a topic was written."""
    return not any(topic in str(path) for path in nodes)
