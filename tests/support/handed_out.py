"""Messages in the hands of a listener, made by hand: for tests of what becomes of them."""

from collections.abc import Sequence
from typing import cast

from ternmq_consumer.listener.consume_dispatcher import ConsumeDispatcher
from ternmq_consumer.listener.consume_request import ConsumeRequest
from ternmq_consumer.listener.consumer_statistics import ConsumeCounters
from ternmq_consumer.process_queue.assigned_queue import AssignedQueue
from ternmq_consumer.process_queue.queue_locks import Lease
from ternmq_consumer.pull_stream.flow_control import FlowControlWindow
from ternmq_model.errors import RefusedError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import encode_record
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import parse_subscription
from ternmq_runtime.timers import LOOP_TIMERS
from tests.support.records import BORN_HOST, STORE_HOST

QUEUE = MessageQueue("t", "b", 0)


def record_at(
    offset: int,
    *,
    queue: MessageQueue = QUEUE,
    body: bytes = b"body",
    properties: str = "",
    sys_flag: int = 0,
    reconsume_times: int = 0,
) -> bytes:
    """Return a record as a broker stores it in a queue."""
    return encode_record(
        topic=queue.topic.encode(),
        queue_id=queue.queue_id,
        body=body,
        properties=properties.encode(),
        born_at_ms=1,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        queue_offset=offset,
        physical_offset=offset * 1000,
        stored_at_ms=1,
        sys_flag=sys_flag,
        reconsume_times=reconsume_times,
    )


def message_at(
    offset: int,
    *,
    queue: MessageQueue = QUEUE,
    properties: str = "",
    reconsume_times: int = 0,
) -> StoredMessage:
    """Return a real message of a queue, whose unique key is `id-<offset>`."""
    record = record_at(
        offset,
        queue=queue,
        properties=f"UNIQ_KEY\x01id-{offset}\x02{properties}",
        reconsume_times=reconsume_times,
    )
    return StoredMessage.at(record, 0, queue, QueueOffset(offset))


class World:
    """A dispatcher and the queues that it serves."""

    def __init__(self, take_max: int = 10, share_among: int = 1, *, in_order: bool = False) -> None:
        self.restarts: list[QueueOffset] = []
        self.counters = ConsumeCounters()
        self.dispatcher = ConsumeDispatcher(
            self.counters,
            take_max=take_max,
            share_among=share_among,
            in_order=in_order,
            timers=LOOP_TIMERS,
        )

    def queue(self, queue_id: int = 0, *, lease: Lease | None = None) -> AssignedQueue:
        """Return a queue that the consumer owns and that nothing is read of."""

        def on_restart(queue: MessageQueue, offset: QueueOffset) -> None:
            self.restarts.append(offset)

        def on_gone(queue: AssignedQueue) -> None:
            raise AssertionError("does not happen here")

        def on_refused(error: RefusedError) -> None:
            raise AssertionError("does not happen here")

        return AssignedQueue(
            MessageQueue(QUEUE.topic, QUEUE.broker_name, queue_id),
            parse_subscription(QUEUE.topic, "*"),
            QueueOffset(0),
            FlowControlWindow(100, 1 << 20),
            on_ready=self.dispatcher.offer,
            on_restart=on_restart,
            on_gone=on_gone,
            on_refused=on_refused,
            lease=lease,
        )

    def add(self, assigned: AssignedQueue, count: int, *, reconsume_times: int = 0) -> None:
        """Have messages of a queue in hand."""
        begin = assigned.in_hand.next_offset
        batch = [
            message_at(begin + place, queue=assigned.queue, reconsume_times=reconsume_times)
            for place in range(count)
        ]
        size = sum(message.record_bytes for message in batch)
        assigned.in_hand.add(batch, size, QueueOffset(begin + count))
        self.dispatcher.offer(assigned)

    async def request(
        self, count: int = 3, *, queue: AssignedQueue | None = None
    ) -> ConsumeRequest:
        """Return a hand-out of as many new messages."""
        self.add(queue or self.queue(), count)
        return await self.dispatcher.next()


def offsets(request: ConsumeRequest) -> list[int]:
    """Return the offsets of the messages of a hand-out that are not finished."""
    return [message.queue_offset for message in request.handout.messages]


def of_offsets(messages: Sequence[object]) -> list[int]:
    """Return the messages' offsets."""
    return [message.queue_offset for message in cast("Sequence[StoredMessage]", messages)]
