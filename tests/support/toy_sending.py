"""What a toy broker serves producers with: answers as a test wants them.

Each batch is recorded, and the promises that producers make to brokers are checked as it comes.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ternmq_model.errors import ConnectionLost
from ternmq_model.message_id import offset_message_id
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.stored_message import StoredMessage, decode_single
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import Call, ServerStream
from ternmq_runtime.service import OwnedTasks
from tests.support.records import BORN_HOST, STORE_HOST
from tests.support.toy_log import ToyLog

SUFFIX = b"CLUSTER\x01toy\x02"
BATCH_BYTES_MAX = 1 << 20

SendServerStream = ServerStream[messages.SendStreamRequest, messages.SendStreamReply]


@dataclass
class SentBatch:
    """One batch as a broker got it."""

    data: bytes
    records: list[StoredMessage]
    is_retry: bool
    at_s: float

    @property
    def bodies(self) -> list[bytes]:
        """The bodies, in order."""
        return [record.body for record in self.records]


@dataclass(frozen=True)
class Answer:
    """What a broker does with a batch."""

    delay_s: float = 0.0
    code: int = 0
    """Of the whole batch; another than those for stored ones stores nothing."""

    refused: dict[int, int] = field(default_factory=dict[int, int])
    """Codes by place in the batch; the others are stored."""

    breaks: bool = False
    """The stream breaks instead of the answer."""

    stores: bool = True
    """Whether a batch without an answer is stored."""

    is_silent: bool = False
    """No answer ever comes."""


async def _answer_success(_: messages.SendRequest) -> int:
    return 0


class ToySending:
    """The sends of one broker.

    Attributes:
        answer: Says what becomes of the next batch. A test may replace it at any time.
        answer_request: Says with which code a unary send is stored, or raises why it is not.
        batches: Every batch that came.
        requests: Every unary send that came.
        opens: What streams were opened with.
        opened: What their opening is answered with.
        unanswered_max: Most batches of one stream that waited for their answers.
    """

    def __init__(self, log: ToyLog) -> None:
        self.answer: Callable[[SentBatch], Answer] = lambda _: Answer()
        self.answer_request: Callable[[messages.SendRequest], Awaitable[int]] = _answer_success
        self.batches: list[SentBatch] = []
        self.requests: list[messages.SendRequest] = []
        self.opens: list[messages.SendStreamOpen] = []
        self.opened = messages.SendStreamOpened(
            born_host=BORN_HOST,
            store_host=STORE_HOST,
            properties_suffix=SUFFIX,
            body_bytes_max=4 << 20,
            properties_bytes_max=32_767,
            batch_bytes_max=BATCH_BYTES_MAX,
        )
        self.unanswered_max = 0
        self._log = log

    async def send(self, request: messages.SendRequest, call: Call) -> messages.SendReply:
        """Take one message."""
        self.requests.append(request)
        code, queue_id = await self.answer_request(request), max(request.queue_id, 0)
        offset, place = self._log.store(request.topic, queue_id, request.body, request.properties)
        return messages.SendReply(
            status=common.Status(code=code),
            message_id="KEY",
            offset_message_id=offset_message_id(STORE_HOST, PhysicalOffset(place)),
            queue_id=queue_id,
            queue_offset=offset,
        )

    async def send_stream(self, batches: SendServerStream, call: Call) -> None:
        """Take batches; answer them in order, each when `answer` says."""
        first = await batches.read()
        assert first is not None
        assert first.HasField("open")
        self.opens.append(first.open)
        await batches.write(messages.SendStreamReply(opened=self.opened))
        if self.opened.status.code:
            return
        waiting: asyncio.Queue[SentBatch] = asyncio.Queue()
        unanswered: list[SentBatch] = []
        async with OwnedTasks() as tasks:
            taking = tasks.spawn(self._take_all(batches, waiting, unanswered), "batches")
            answering = tasks.spawn(self._answer_all(batches, waiting, unanswered), "answers")
            await asyncio.wait([taking, answering], return_when=asyncio.FIRST_COMPLETED)
        if not answering.cancelled():
            raise ConnectionLost(f"{self._log.name} breaks")

    async def _take_all(
        self,
        batches: SendServerStream,
        waiting: "asyncio.Queue[SentBatch]",
        unanswered: list[SentBatch],
    ) -> None:
        while (request := await batches.read()) is not None:
            batch = _parse(request.batch, self._log.name)
            unanswered.append(batch)
            self.unanswered_max = max(self.unanswered_max, len(unanswered))
            _check_promises(unanswered)
            self.batches.append(batch)
            waiting.put_nowait(batch)

    async def _answer_all(
        self,
        batches: SendServerStream,
        waiting: "asyncio.Queue[SentBatch]",
        unanswered: list[SentBatch],
    ) -> None:
        """Answer batches until the stream is to break."""
        while True:
            batch = await waiting.get()
            answer = self.answer(batch)
            if answer.delay_s:
                await asyncio.sleep(answer.delay_s)
            is_lost = answer.breaks or answer.is_silent
            reply = self._store(batch, answer) if answer.stores or not is_lost else None
            if answer.is_silent:
                await asyncio.Event().wait()
            if is_lost:
                return
            unanswered.remove(batch)
            await batches.write(messages.SendStreamReply(stored=reply))

    def _store(self, batch: SentBatch, answer: Answer) -> messages.SendBatchReply:
        if answer.code not in (0, 10, 11, 12):
            return messages.SendBatchReply(status=common.Status(code=answer.code, remark="toy"))
        places = [
            (-1, -1) if index in answer.refused else self._store_one(record)
            for index, record in enumerate(batch.records)
        ]
        offsets = np.array(places, dtype="<i8")
        return messages.SendBatchReply(
            status=common.Status(code=answer.code),
            queue_offsets=offsets[:, 0].tobytes(),
            physical_offsets=offsets[:, 1].tobytes(),
            refused=[
                messages.RefusedRecord(index=index, status=common.Status(code=code, remark="toy"))
                for index, code in answer.refused.items()
            ],
        )

    def _store_one(self, sent: StoredMessage) -> tuple[int, int]:
        return self._log.store(
            sent.topic,
            sent.queue.queue_id,
            sent.stored_body,
            sent.properties,
            born_at_ms=sent.born_at_ms,
            flag=sent.flag,
            sys_flag=sent.sys_flag,
        )


def _parse(batch: messages.SendBatch, broker_name: str) -> SentBatch:
    records: list[StoredMessage] = []
    begin = 0
    for size in np.frombuffer(batch.record_sizes, dtype="<i4").tolist():
        record = batch.records[begin : begin + size]
        assert record.endswith(SUFFIX)
        records.append(decode_single(record, broker_name))
        begin += size
    assert begin == len(batch.records)
    now_s = asyncio.get_running_loop().time()
    return SentBatch(batch.records, records, batch.is_retry, now_s)


def _check_promises(unanswered: Sequence[SentBatch]) -> None:
    """Hold a producer to what it promises a broker."""
    assert len(unanswered) <= 2, "more than two batches are unanswered"
    newest = unanswered[-1]
    is_small = len(newest.data) <= BATCH_BYTES_MAX
    assert is_small or len(newest.records) == 1, "the batch is too large"
    queues = Counter(
        queue
        for batch in unanswered
        for queue in {record.queue for record in batch.records if record.sharding_key}
    )
    assert all(count == 1 for count in queues.values()), "an ordered queue is in two batches"
