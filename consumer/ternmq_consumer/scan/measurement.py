"""How long stretches of queues are, asked of their brokers."""

import asyncio
from collections.abc import Sequence
from typing import Final

from ternmq_consumer.scan.range_batches import MeasuredStretch, StretchToMeasure
from ternmq_consumer.scan.range_reader import ScanClient, connected, given_up_when_broken
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.service_methods import MEASURE_QUEUES

REQUEST_STRETCHES_MAX: Final = 1_024
_ASK_S: Final = 30.0


async def measure(
    client: ScanClient, stretches: Sequence[StretchToMeasure]
) -> list[MeasuredStretch]:
    """Return how long each stretch is, in their order. Brokers are asked side by side.

    Args:
        client: Open.
        stretches: Any number, of any brokers.

    Raises:
        TransportError: A broker did not answer.
        RefusedError: One said no.
    """
    rows_of: dict[str, list[int]] = {}
    for row, stretch in enumerate(stretches):
        rows_of.setdefault(stretch.queue.broker_name, []).append(row)
    asked = [
        rows[first : first + REQUEST_STRETCHES_MAX]
        for rows in rows_of.values()
        for first in range(0, len(rows), REQUEST_STRETCHES_MAX)
    ]
    answers = await asyncio.gather(
        *(_ask(client, [stretches[row] for row in rows]) for rows in asked)
    )
    found = {
        row: measured
        for rows, answer in zip(asked, answers, strict=True)
        for row, measured in zip(rows, answer, strict=True)
    }
    return [found[row] for row in range(len(stretches))]


async def _ask(client: ScanClient, stretches: list[StretchToMeasure]) -> list[MeasuredStretch]:
    broker_name = stretches[0].queue.broker_name
    connection = await connected(client, stretches[0].queue)
    request = admin.MeasureQueuesRequest(
        stretches=[
            admin.QueueStretch(
                topic=queue.topic,
                queue_id=queue.queue_id,
                begin_offset=begin,
                end_offset=end,
                bytes_max=bytes_max,
            )
            for queue, begin, end, bytes_max in stretches
        ]
    )
    with given_up_when_broken(client, broker_name, connection):
        reply = await connection.call(MEASURE_QUEUES, request, timeout_s=_ASK_S)
    return [MeasuredStretch(each.end_offset, each.bytes) for each in reply.stretches]
