"""Dead letters of a real cluster, made as consumers make them."""

import asyncio

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.blocking_client import shared_loop_thread
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.stored_message import StoredMessage

WITHIN_S = 150.0


def bury(nameserver: str, group: str, topic: str, count: int) -> None:
    """Let a group give up the `count` messages that a topic has; they are dead letters then."""

    async def refuse(_: StoredMessage) -> bool:
        return False

    async def main() -> None:
        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, retries_max=0)
        async with (
            asyncio.timeout(WITHIN_S),
            AdminClient(nameserver=nameserver) as admin,
            PushConsumer(group, topic, listener=refuse, nameserver=nameserver, config=config),
        ):
            kept = 0
            while kept < count:  # each look is a round trip
                found = await admin.dead_letter_counts()
                kept = sum(one.kept for one in found if one.group == group)

    shared_loop_thread().run(main())
