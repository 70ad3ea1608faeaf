"""Replies to batches: each message's answer goes to its sink. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Final, cast

from ternmq_model.arrays import Ints, read_int32s, read_int64, read_int64s
from ternmq_model.errors import RefusedError, TernError
from ternmq_model.message import SendResult, SendStatus
from ternmq_model.response_code import CALLERS_CODES, STORED_CODES, ResponseCode
from ternmq_producer.batch.batcher import ProducerBatch
from ternmq_producer.batch.pending_send import Pending, PendingSend
from ternmq_producer.batch.result_sinks import ResultSink, SinkList
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.converters import error_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ternmq_model.queue import MessageQueue

_STATUSES: Final = {int(status.value): status for status in SendStatus}
_new_result: Final = cast(
    "Callable[[type[SendResult], tuple[object, ...]], SendResult]", tuple.__new__
)
"""Constructor of results in a third of the time; every message has a result."""


@dataclass(slots=True)
class SendFailure:
    """Message that a batch did not store, with the error."""

    pending: Pending
    error: TernError
    is_overtaken: bool = False
    """True when a later message of the ordered queue was stored, so that a retry would break the
    order."""


def code_of(reply: messages.SendBatchReply) -> int:
    """Return the code for all stored messages of a batch, or the one that refuses all of it."""
    return reply.status.code if reply.HasField("status") else ResponseCode.SUCCESS


def fits(batch: ProducerBatch, reply: messages.SendBatchReply) -> bool:
    """Return whether `reply` has as many answers as `batch` has messages."""
    if code_of(reply) not in STORED_CODES:
        return True
    length = 8 * len(batch)
    return (
        len(reply.queue_offsets) == length
        and len(reply.physical_offsets) == length
        and not (batch.is_atomic and reply.refused)
        and len(reply.queue_ids) in (0, length // 2)
        and all(0 <= refused.index < len(batch) for refused in reply.refused)
    )


def is_brokers_fault(status: common.Status) -> bool:
    """Return whether a broker refused a whole batch because it is busy, closing or broken."""
    code = status.code
    return code not in STORED_CODES and code not in CALLERS_CODES


def deliver(
    batch: ProducerBatch, reply: messages.SendBatchReply, *, store_host: bytes, broker_name: str
) -> list[SendFailure]:
    """Answer every stored message of `batch`; return the others, in order."""
    code = code_of(reply)
    if code not in STORED_CODES:
        return _refuse_all(batch, reply, broker_name)
    if len(batch.singles) == 1 and not (batch.parts or reply.refused or reply.queue_ids):
        (pending,) = batch.singles
        offsets = read_int64(reply.queue_offsets), read_int64(reply.physical_offsets)
        _answer(pending, _STATUSES[code], *offsets, store_host)
        return []
    queue_offsets = read_int64s(reply.queue_offsets)
    physical_offsets = read_int64s(reply.physical_offsets)
    if batch.is_atomic and reply.queue_ids:
        # An earlier attempt had stored the batch, perhaps in another queue.
        (part,) = batch.parts
        queue_id = int(read_int32s(reply.queue_ids)[0])
        part.queue = part.queue._replace(queue_id=queue_id)
    elif reply.refused or reply.queue_ids:
        return _deliver_some(batch, reply, queue_offsets, physical_offsets, store_host, broker_name)
    status = _STATUSES[code]
    singles = batch.singles
    begin = len(singles)
    _answer_each(
        [pending.sink for pending in singles],
        status,
        [pending.unique_key for pending in singles],
        [pending.queue for pending in singles],
        queue_offsets[:begin],
        physical_offsets[:begin],
        store_host,
    )
    for part in batch.parts:
        end = begin + len(part)
        if isinstance(part.sink, SinkList):
            _answer_each(
                part.sink.slots(),
                status,
                part.unique_keys.tolist(),
                part.queues,  # one for each message
                queue_offsets[begin:end],
                physical_offsets[begin:end],
                store_host,
            )
        elif not part.sink.done():
            part.sink.bulk.put_many(
                part.sink.positions,
                code,
                part.unique_keys,
                part.queues,
                part.queue_indices,
                queue_offsets[begin:end],
                physical_offsets[begin:end],
                store_host,
            )
        begin = end
    return []


def _answer_each(
    sinks: Sequence[ResultSink],
    status: SendStatus,
    unique_keys: Sequence[bytes],
    queues: "Sequence[MessageQueue]",
    queue_offsets: Ints,
    physical_offsets: Ints,
    store_host: bytes,
) -> None:
    """Answer messages as stored, all but those for which no caller waits."""
    results = map(
        _new_result,
        repeat(SendResult),
        zip(
            repeat(status),
            map(bytes.decode, unique_keys),
            queues,
            queue_offsets.tolist(),
            physical_offsets.tolist(),
            repeat(store_host),
        ),
    )
    for sink, result in zip(sinks, results, strict=True):
        if not sink.done():
            sink.set_result(result)


def _answer(
    pending: PendingSend,
    status: SendStatus,
    queue_offset: int,
    physical_offset: int,
    store_host: bytes,
) -> None:
    """Answer one message as `_answer_each` answers many."""
    sink = pending.sink
    if not sink.done():
        key = pending.unique_key.decode()
        result = (status, key, pending.queue, queue_offset, physical_offset, store_host)
        sink.set_result(_new_result(SendResult, result))


def _refuse_all(
    batch: ProducerBatch, reply: messages.SendBatchReply, broker_name: str
) -> list[SendFailure]:
    """Return every message of a batch that is not known to be stored.

    A message that was refused by itself is certainly not stored.
    """
    error = error_of(reply.status, broker_name)
    errors = _errors_of(reply, broker_name)
    failures: list[SendFailure] = []
    for index, pending in enumerate(batch.one_by_one()):
        refused = errors.get(index)
        if refused is None:
            pending.maybe_stored |= error.may_have_happened
        failures.append(SendFailure(pending, refused or error))
    return failures


def _errors_of(reply: messages.SendBatchReply, broker_name: str) -> dict[int, RefusedError]:
    return {refused.index: error_of(refused.status, broker_name) for refused in reply.refused}


def _deliver_some(
    batch: ProducerBatch,
    reply: messages.SendBatchReply,
    queue_offsets: Ints,
    physical_offsets: Ints,
    store_host: bytes,
    broker_name: str,
) -> list[SendFailure]:
    """Answer a batch of which some messages were refused, or were stored by earlier attempts."""
    errors = _errors_of(reply, broker_name)
    status = _STATUSES[reply.status.code]
    queue_ids = read_int32s(reply.queue_ids).tolist()
    stored_queues: set[MessageQueue] = set()
    failures: list[SendFailure] = []
    everything = batch.as_singles()
    for index in range(len(everything) - 1, -1, -1):
        pending = everything[index]
        if (error := errors.get(index)) is not None:
            is_overtaken = pending.is_ordered and pending.queue in stored_queues
            failures.append(SendFailure(pending, error, is_overtaken))
            continue
        if pending.is_ordered:
            stored_queues.add(pending.queue)
        if not pending.sink.done():
            key = pending.unique_key.decode()
            offsets = (int(queue_offsets[index]), int(physical_offsets[index]), store_host)
            queue = pending.queue
            if queue_ids:  # an earlier attempt had stored the message, perhaps in another queue
                queue = queue._replace(queue_id=queue_ids[index])
            pending.sink.set_result(_new_result(SendResult, (status, key, queue, *offsets)))
    failures.reverse()
    return failures
