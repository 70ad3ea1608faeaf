"""Sends of many messages in one call: their parts, and the wait for all answers."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Final

import numpy as np

from ternmq_model.arguments import is_kind
from ternmq_model.arrays import Ints
from ternmq_model.byte_column import ByteColumn
from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendResult
from ternmq_model.properties import encode_properties
from ternmq_model.queue import MessageQueue
from ternmq_producer.batch.bulk import Bulk, BulkSlot, BulkSlots, SendResults
from ternmq_producer.batch.column_results import ColumnResults, SendColumnsFailed
from ternmq_producer.batch.pending_send import RECORD_EXTRA_BYTES, PendingBatch
from ternmq_producer.batch.send_errors import renewed
from ternmq_producer.columns.message_columns import NO_QUEUE, EncodedColumns, MessageColumns
from ternmq_producer.queue_selection.selectors import is_ordered
from ternmq_producer.queue_selection.topic_publish_info import TopicPublishInfo
from ternmq_producer.send.message_sender import MessageSender
from ternmq_producer.send.send_interception import OnAnswer, SendInterception
from ternmq_producer.send.ticket_queue import Ticket

logger = logging.getLogger(__name__)

PART_BYTES_MAX: Final = 512 << 10
PART_MESSAGES_MAX: Final = 2048
"""Limit of one part of a call, prepared while the broker works on the part before."""

_COLUMN_BYTES_MAX: Final = 4 << 20
"""Bytes of a part beyond which each message waits for buffer space by itself."""


async def send_messages(
    sender: MessageSender, messages: Sequence[Message], timeout_ms: int
) -> Bulk:
    """Send `messages`, and return the answers."""
    count = len(messages)
    async with _answers(sender, count, "send_many") as bulk:
        start = 0
        while start < count:
            room_for = PART_BYTES_MAX // (len(messages[start].body) + RECORD_EXTRA_BYTES)
            size = min(max(room_for, 1), PART_MESSAGES_MAX)
            part = messages[start : start + size]
            await _submit_part(sender, bulk, part, start, timeout_ms)
            start += len(part)
            await asyncio.sleep(0)  # so that the part leaves before the next one is prepared
    return bulk


async def send_columns(
    sender: MessageSender,
    columns: MessageColumns,
    timeout_ms: int,
    interception: SendInterception | None,
) -> ColumnResults:
    """Send the messages in `columns`, between their interceptors, and return their results.

    Raises:
        SendColumnsFailed: Some messages were not stored, or may not have been.
    """
    afters: dict[int, OnAnswer] = {}
    try:
        answers = await _columns_answers(sender, columns, timeout_ms, interception, afters)
    except BaseException:
        for after in afters.values():
            after(None)
        raise
    sent = SendResults(answers)
    for row, after in afters.items():
        after(answers.errors.get(row) or sent[row])
    results = ColumnResults.of(answers)
    if results.errors:
        raise SendColumnsFailed(results)
    return results


async def _columns_answers(
    sender: MessageSender,
    columns: MessageColumns,
    timeout_ms: int,
    interception: SendInterception | None,
    afters: dict[int, OnAnswer],
) -> Bulk:
    """Send the messages in `columns`, and return the answers, which `afters` wait for."""
    async with _answers(sender, len(columns), "send_columns") as bulk:
        for encoded in columns.encoded():
            for row, error in encoded.errors.items():
                bulk.put(row, error)
            costs = encoded.bodies.sizes + encoded.properties.sizes
            costs += RECORD_EXTRA_BYTES
            for rows in part_slices(costs):
                part = encoded.rows(rows)
                deadline_ms = sender.clock.monotonic_ms() + timeout_ms
                if interception is None:
                    await _submit_columns(sender, bulk, part, deadline_ms)
                elif not interception.has_interceptors:
                    part = _traced(part, interception, afters)
                    await _submit_columns(sender, bulk, part, deadline_ms)
                else:
                    await _submit_intercepted(sender, bulk, part, deadline_ms, interception, afters)
                await asyncio.sleep(0)  # so that the part leaves before the next one is prepared
    return bulk


def _begin_spans(
    positions: Ints,
    message_at: Callable[[int], Message],
    interception: SendInterception,
    afters: dict[int, OnAnswer],
) -> Mapping[int, Message]:
    """Return the traced messages of a part, by row, and add the ends of their spans to `afters`.

    Args:
        positions: Position of each message in the call.
        message_at: Function that returns the message of a row.
        interception: Spans of the producer.
        afters: Functions for the outcomes of messages, by position.
    """
    begun = interception.begin_rows(len(positions), message_at)
    if begun is None:
        return {}
    traced, end = begun
    outcomes: dict[int, SendResult | TernError | None] = {}

    def note(row: int, after: OnAnswer | None, outcome: SendResult | TernError | None) -> None:
        outcomes[row] = outcome
        if len(outcomes) == len(traced):
            end(outcomes.__getitem__)
        if after is not None:
            after(outcome)

    for row in traced:
        position = int(positions[row])
        afters[position] = partial(note, row, afters.get(position))
    return traced


def _traced(
    part: EncodedColumns, interception: SendInterception, afters: dict[int, OnAnswer]
) -> EncodedColumns:
    """Return `part` with the contexts of its sampled messages. See `_begin_spans`."""
    message_at = cache(part.message)
    traced = _begin_spans(part.positions, message_at, interception, afters)
    if not traced:
        return part
    properties = part.properties.copies()
    for row, message in traced.items():
        before = message_at(row).properties
        added = {name: value for name, value in message.properties.items() if name not in before}
        properties[row] = encode_properties(added) + properties[row]
    return replace(part, properties=ByteColumn.listed(properties))


async def _submit_intercepted(
    sender: MessageSender,
    bulk: Bulk,
    part: EncodedColumns,
    deadline_ms: int,
    interception: SendInterception,
    afters: dict[int, OnAnswer],
) -> None:
    """Submit `part` message by message, all that no interceptor refuses.

    Args:
        sender: Sender of the messages.
        bulk: Answers of the call.
        part: Messages.
        deadline_ms: Time at which the messages fail, monotonic.
        interception: Interceptors.
        afters: Functions for the outcomes of messages, by position, to which those of `part` are
            added.
    """
    messages, rows = list[Message](), list[int]()
    for row, position in enumerate(part.positions.tolist()):
        try:
            message, afters[position] = interception.before(part.message(row))
        except TernError as error:
            bulk.put(position, error)
            continue
        messages.append(message)
        rows.append(row)
    if not messages:
        return
    part = part.rows(np.array(rows))
    spans = _begin_spans(part.positions, messages.__getitem__, interception, afters)
    messages = [spans.get(row, message) for row, message in enumerate(messages)]
    with _joined(sender, messages, part.have_queues) as tickets:
        try:
            publish_info = await sender.publish_info(part.topic, deadline_ms)
        except TernError as error:
            _fail(bulk, part.positions, error)
            return
        for position, refusal in part.queue_errors(publish_info).items():
            bulk.put(position, refusal)
        chosen: list[int] = part.chosen_queues(publish_info).tolist()
        queues = [
            publish_info.queues[index] if has_queue else None
            for index, has_queue in zip(chosen, part.have_queues, strict=True)
        ]
        await _submit_singly(sender, bulk, messages, part.positions, queues, tickets, deadline_ms)


def part_slices(costs: Ints) -> Sequence[slice]:
    """Return the slices of messages for the parts of a call.

    Args:
        costs: Bytes of each message.
    """
    ends: Ints = np.cumsum(costs)
    slices: list[slice] = []
    begin = 0
    while begin < len(costs):
        limit = int(ends[begin] - costs[begin]) + PART_BYTES_MAX
        end = int(np.searchsorted(ends, limit, side="right"))
        end = min(max(end, begin + 1), begin + PART_MESSAGES_MAX)
        slices.append(slice(begin, end))
        begin = end
    return slices


@asynccontextmanager
async def _answers(sender: MessageSender, count: int, verb: str) -> AsyncGenerator[Bulk]:
    """Yield the answers to `count` messages, and wait for them after the block."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bulk = Bulk(count, done)
    try:
        with sender.buffer.entering():
            yield bulk
        if count:
            await done
    except asyncio.CancelledError:
        logger.warning(
            "send was cancelled, messages may be stored call=%s group=%s messages=%s unanswered=%s",
            verb,
            sender.group,
            count,
            bulk.unanswered,
        )
        raise
    finally:
        bulk.abandon()


async def _submit_columns(
    sender: MessageSender, bulk: Bulk, part: EncodedColumns, deadline_ms: int
) -> None:
    """Pass `part` to its links once there is buffer space."""
    try:
        with ExitStack() as stack:
            ticket = None
            if part.is_ordered:
                ticket = stack.enter_context(sender.tickets.join(part.topic))
            publish_info = await sender.publish_info(part.topic, deadline_ms)
            errors = part.queue_errors(publish_info)
            for row, error in errors.items():
                bulk.put(row, error)
            if errors:
                part = part.rows(np.flatnonzero(~np.isin(part.positions, list(errors))))
            if len(part):
                await _hand_over(sender, bulk, part, publish_info, deadline_ms, ticket)
    except TernError as error:
        _fail(bulk, part.positions, error)


async def _hand_over(
    sender: MessageSender,
    bulk: Bulk,
    part: EncodedColumns,
    publish_info: TopicPublishInfo,
    deadline_ms: int,
    ticket: Ticket | None = None,
) -> None:
    """Pass `part`, which has a route, to its links once it has its turn and buffer space.

    Raises:
        TernError: There was no buffer space in time.
    """
    sizes = part.bodies.sizes + part.properties.sizes
    sizes += publish_info.overhead_bytes
    bodies, sys_flags = part.bodies, None
    if int(bodies.sizes.max()) >= sender.compressor.from_bytes:
        compressed, sys_flags = await sender.compressor.compress_many(bodies.copies())
        bodies = ByteColumn.listed(compressed)
    await sender.reserve(int(sizes.sum()), deadline_ms, ticket)
    chosen = part.chosen_queues(publish_info)
    free = np.flatnonzero(chosen == NO_QUEUE)
    if len(free):
        chosen[free] = sender.fault_strategy.turns(publish_info, len(free))
    batch = PendingBatch(
        BulkSlots(bulk, part.positions),
        publish_info.topic,
        bodies,
        part.properties,
        part.flags,
        publish_info.queues,
        chosen,
        sizes,
        sender.clock.monotonic_ms(),
        deadline_ms,
        0 if sys_flags is None else sys_flags,
    )
    if len(free) < len(part):
        is_ordered = np.ones(len(part), dtype=np.bool_)
        is_ordered[free] = False
        ordered: list[int] = np.unique(chosen[is_ordered]).tolist()
        for index in ordered:
            rows = np.flatnonzero(is_ordered & (chosen == index))
            one = batch.rows(rows, is_ordered=True)
            publish_info.links[index].add(one)
        if not len(free):
            return
        batch = batch.rows(free)
    for name, one in batch.by_broker():
        sender.link(name).add(one)


async def _submit_part(
    sender: MessageSender, bulk: Bulk, part: Sequence[Message], start: int, timeout_ms: int
) -> None:
    """Pass `part`, which begins at message `start`, to its links once there is buffer space.

    Errors become the answers of their messages.
    """
    deadline_ms = sender.clock.monotonic_ms() + timeout_ms
    positions = np.arange(start, start + len(part))
    plain = await _plain(sender, part, positions, deadline_ms)
    if plain is None:
        with _joined(sender, part, [False] * len(part)) as tickets:
            queues = [None] * len(part)
            await _submit_singly(sender, bulk, part, positions, queues, tickets, deadline_ms)
        return
    try:
        await _hand_over(sender, bulk, *plain, deadline_ms)
    except TernError as error:
        _fail(bulk, positions, error)


def _fail(bulk: Bulk, positions: Ints, error: TernError) -> None:
    for position in positions.tolist():
        bulk.put(position, renewed(error, may_have_happened=False))


@contextmanager
def _joined(
    sender: MessageSender, messages: Sequence[Message], have_queues: Sequence[bool]
) -> Generator[Sequence[Ticket | None]]:
    """Yield the ticket of each message, the same for all of a topic; None = the order is free.

    Args:
        sender: Sender of the messages.
        messages: Messages.
        have_queues: For each message, whether the caller chose its queue.
    """
    with ExitStack() as stack:
        by_topic: dict[str, Ticket] = {}
        tickets: list[Ticket | None] = []
        for message, has_queue in zip(messages, have_queues, strict=True):
            ticket = None
            is_in_order = has_queue or is_ordered(message, None, None)
            if is_in_order and is_kind(topic := message.topic, str):
                if topic not in by_topic:
                    by_topic[topic] = stack.enter_context(sender.tickets.join(topic))
                ticket = by_topic[topic]
            tickets.append(ticket)
        yield tickets


async def _submit_singly(
    sender: MessageSender,
    bulk: Bulk,
    part: Sequence[Message],
    positions: Ints,
    queues: Sequence[MessageQueue | None],
    tickets: Sequence[Ticket | None],
    deadline_ms: int,
) -> None:
    """Submit the messages of `part` that have no answer one by one.

    Args:
        sender: Sender of the messages.
        bulk: Answers of the call.
        part: Messages.
        positions: Position of each message in the call.
        queues: Queue that the caller chose for each message. None = no choice.
        tickets: Ticket of each message.
        deadline_ms: Time at which the messages fail, monotonic.
    """
    now_ms = sender.clock.monotonic_ms()
    for message, position, queue, ticket in zip(
        part, positions.tolist(), queues, tickets, strict=True
    ):
        slot = BulkSlot(bulk, position)
        if slot.done():
            continue
        order = (queue, None, now_ms, deadline_ms, ticket)
        try:
            if not sender.submit_now(slot, message, *order):
                await sender.submit(slot, message, *order)
                now_ms = sender.clock.monotonic_ms()
        except TernError as error:
            slot.set_exception(error)


async def _plain(
    sender: MessageSender, part: Sequence[Message], positions: Ints, deadline_ms: int
) -> tuple[EncodedColumns, TopicPublishInfo] | None:
    """Return a `part` as columns, and its queues.

    None: a message has another topic, a sharding key or an error, the part has too many bytes,
    or the topic has no route.
    """
    topic = part[0].topic
    for message in part:
        if message.sharding_key or message.topic != topic:
            return None
    if not is_kind(topic, str):
        return None
    try:
        publish_info = sender.publish_infos.get(topic)
        if publish_info is None or sender.config.fail_fast:
            publish_info = await sender.publish_info(topic, deadline_ms)
        properties, sizes = publish_info.encoded(part)
    except TernError:
        return None
    if sizes.sum() > _COLUMN_BYTES_MAX:
        return None
    bodies = ByteColumn.listed([message.body for message in part])
    flags = np.array([message.flag for message in part])
    return EncodedColumns(topic, positions, bodies, properties, flags=flags), publish_info
