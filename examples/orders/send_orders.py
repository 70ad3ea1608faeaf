"""Places an order twice a second, whatever becomes of single brokers, until it is told to stop."""

import asyncio
import itertools
import json

from ternmq import Message, Producer, TernError, run

PAUSE_S = 0.5
ITEMS = ("tea", "coffee", "cocoa")


async def main() -> None:
    """Send until SIGTERM or Ctrl-C; what is under way is answered first."""
    async with Producer("shop") as producer:
        for number in itertools.count(1):
            order = {"number": number, "item": ITEMS[number % len(ITEMS)], "cups": number % 4 + 1}
            message = Message("orders", json.dumps(order).encode(), tags=str(order["item"]))
            try:
                result = await producer.send(message)
                print(f"order {number}: {result.status.name} at {result.queue.broker_name}")
            except TernError as error:
                print(f"order {number}: not placed: {error}")
            await asyncio.sleep(PAUSE_S)


run(main())
