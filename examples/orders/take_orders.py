"""Takes orders as a member of a group, until it is told to stop. Run as many as you like."""

import asyncio
import json

from ternmq import PushConsumer, StoredMessage, run


async def prepare(message: StoredMessage) -> None:
    """Do an order. When this raises, the order comes again later."""
    order = json.loads(message.body)
    place = f"{message.queue.broker_name}, queue {message.queue.queue_id}"
    # A terminal obeys escapes in what others send; !a shows them.
    print(f"order {order['number']!a}: {order['cups']!a} x {order['item']!a}, from {place}")


async def main() -> None:
    """Consume until SIGTERM or Ctrl-C; what is in hand is finished first."""
    async with PushConsumer("kitchen", "orders", listener=prepare):
        await asyncio.Event().wait()


run(main())
