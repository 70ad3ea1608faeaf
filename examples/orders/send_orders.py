"""Places an order twice a second, whatever becomes of single brokers, until it is told to stop."""

import asyncio
import contextlib
import itertools
import json
import signal

from ternmq import Message, Producer, TernError

PAUSE_S = 0.5
ITEMS = ("tea", "coffee", "cocoa")


async def main() -> None:
    """Send until SIGTERM or Ctrl-C."""
    stopped = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stopped.set)
    async with Producer("shop") as producer:
        for number in itertools.count(1):
            order = {"number": number, "item": ITEMS[number % len(ITEMS)], "cups": number % 4 + 1}
            message = Message("orders", json.dumps(order).encode(), tags=str(order["item"]))
            try:
                result = await producer.send(message)
                print(f"order {number}: {result.status.name} at {result.queue.broker_name}")
            except TernError as error:
                print(f"order {number}: not placed: {error}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), PAUSE_S)
                return


asyncio.run(main())
