"""The results of many sends."""

import asyncio

from ternmq_model.message import SendResult, SendStatus
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_producer.batch.bulk import Bulk
from ternmq_testing.time.virtual_time import run_in_virtual_time

QUEUE = MessageQueue("T", "broker-a", 3)


def result(status: SendStatus, offset: int) -> SendResult:
    return SendResult(
        status, "K" * 32, QUEUE, QueueOffset(offset), PhysicalOffset(100 * offset), bytes(8)
    )


def test_results_are_counted_by_status() -> None:
    async def main() -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        bulk = Bulk(3, done)
        for index, status in enumerate([SendStatus.SEND_OK, SendStatus.FLUSH_DISK_TIMEOUT]):
            bulk.put(index, result(status, index))
        bulk.put(2, result(SendStatus.SEND_OK, 2))
        await done
        results = bulk.results()
        assert repr(results) == "SendResults(SEND_OK: 2, FLUSH_DISK_TIMEOUT: 1)"
        assert results[2] == result(SendStatus.SEND_OK, 2)
        assert repr(results[2]) == f"SendResult(SEND_OK, {QUEUE}, offset=2, id={'K' * 32})"

    run_in_virtual_time(main())
