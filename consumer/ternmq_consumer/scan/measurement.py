"""Measurement of ranges of queues, in bytes, by their brokers."""

import asyncio
from collections.abc import Sequence
from typing import Final

from ternmq_consumer.scan.range_batches import MeasuredRange, RangeToMeasure
from ternmq_consumer.scan.range_reader import ScanClient, connection_for, given_up_when_broken
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.service_methods import MEASURE_QUEUES

REQUEST_RANGES_MAX: Final = 1_024
_ASK_S: Final = 30.0


async def measure(client: ScanClient, ranges: Sequence[RangeToMeasure]) -> list[MeasuredRange]:
    """Return the measure of each range, in their order. The brokers are asked concurrently.

    Args:
        client: Open client.
        ranges: Any number of ranges, of any brokers.

    Raises:
        TransportError: A broker did not answer.
        RefusedError: A broker refused the request.
    """
    rows_of: dict[str, list[int]] = {}
    for row, each in enumerate(ranges):
        rows_of.setdefault(each.queue.broker_name, []).append(row)
    asked = [
        rows[first : first + REQUEST_RANGES_MAX]
        for rows in rows_of.values()
        for first in range(0, len(rows), REQUEST_RANGES_MAX)
    ]
    answers = await asyncio.gather(*(_ask(client, [ranges[row] for row in rows]) for rows in asked))
    found = {
        row: measured
        for rows, answer in zip(asked, answers, strict=True)
        for row, measured in zip(rows, answer, strict=True)
    }
    return [found[row] for row in range(len(ranges))]


async def _ask(client: ScanClient, ranges: list[RangeToMeasure]) -> list[MeasuredRange]:
    broker_name = ranges[0].queue.broker_name
    connection = await connection_for(client, ranges[0].queue)
    request = admin.MeasureQueuesRequest(
        stretches=[
            admin.QueueStretch(
                topic=queue.topic,
                queue_id=queue.queue_id,
                begin_offset=begin,
                end_offset=end,
                bytes_max=bytes_max,
            )
            for queue, begin, end, bytes_max in ranges
        ]
    )
    with given_up_when_broken(client, broker_name, connection):
        reply = await connection.call(MEASURE_QUEUES, request, timeout_s=_ASK_S)
    return [MeasuredRange(each.end_offset, each.bytes) for each in reply.stretches]
