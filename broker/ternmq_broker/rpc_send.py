"""Send and SendStream: requests in, answers out in order."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from ternmq_broker.confirmations import Confirmations
from ternmq_broker.hosts import born_host_bytes
from ternmq_broker.inner.room import append_with_room
from ternmq_broker.intake import Intake
from ternmq_broker.live_settings.settings import LiveSettings
from ternmq_broker.sending import MessageWriter, Refusal, Sender, Stored
from ternmq_model import properties as names
from ternmq_model.clock import Clock
from ternmq_model.errors import (
    ClosedError,
    ConnectionLost,
    IllegalMessage,
    InvalidParameter,
    StoreError,
    TernError,
    refusal,
)
from ternmq_model.message_id import UniqueKeys, offset_message_id
from ternmq_model.names import AUTO_CREATE_TOPIC, check_topic
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import check_property, encode_properties
from ternmq_model.record import (
    BODY_BYTES_MAX,
    FLAG_COMPRESSION_MASK,
    PROPERTIES_BYTES_MAX,
    encode_record,
)
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.contracts import SEND, SEND_STREAM
from ternmq_remoting.rpc import Call, Handler, ServerStream, stream, unary
from ternmq_remoting.status import refusal_of
from ternmq_runtime.service import OwnedTasks

logger = logging.getLogger(__name__)

SendServerStream = ServerStream[messages.SendStreamRequest, messages.SendStreamReply]

BATCH_BYTES_MAX: Final = 1 << 20
"""What a stream's sender is told to keep to; one larger record may go alone."""

_YIELD_AFTER_MS: Final = 5
_PENDING_MAX: Final = 1024
"""Answers that may wait on one stream: a caller that never reads them is not read either."""


@dataclass(slots=True)
class Pending:
    """A request whose answer waits for its turn."""

    reply: messages.SendStreamReply
    request_bytes: int
    safe: Sequence[asyncio.Future[None]] = ()
    """All are done when the answer may leave; none = at once."""

    deadline_s: float = 0.0
    """Loop time at which the answer is FLUSH_DISK_TIMEOUT instead. Both as `safe` returns them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SendServices:
    """What sending stands on. All owned by the broker's loop."""

    live: LiveSettings
    sync_flush_timeout_ms: int
    clock: Clock
    random: Random
    writer: MessageWriter
    confirmations: Confirmations
    intake: Intake
    properties_suffix: Callable[[], bytes]
    """What the broker adds to the properties of a message that is built now."""

    store_host: Callable[[], bytes]
    """Known when the broker listens."""

    topics_saved: Callable[[], asyncio.Future[None] | None]
    """What to wait for before sends to a topic just created are acknowledged; None = nothing."""

    room_made: Callable[[], Awaitable[bool]]
    """Waits for what an append that was refused as busy lacked, such as the log's next file; tells
    whether to try again."""

    is_closing: Callable[[], bool]

    async def store(self, records: bytes, record_sizes: bytes, sender: Sender) -> Stored:
        """Check and append, waiting for room in the log if it is just being made.

        Raises:
            TernError: Nothing was stored.
        """
        append = partial(self.writer.store, records, record_sizes, sender)
        return await append_with_room(append, self.room_made)

    def safe(self, end: PhysicalOffset) -> tuple[Sequence[asyncio.Future[None]], float]:
        """Return what to wait for before records that end at `end` are acknowledged, and how long.

        Returns:
            Futures that raise StoreError when the disk fails; none when all is safe already. The
            loop's time at which the sender is told that it takes too long.
        """
        saved = self.topics_saved()
        if saved is None and self.confirmations.reached(end):
            return (), 0.0
        confirmed = self.confirmations.wait(end)
        timeout_s = self.sync_flush_timeout_ms / 1000
        return (
            (confirmed,) if saved is None else (confirmed, saved),
            asyncio.get_running_loop().time() + timeout_s,
        )


class SendService:
    """Serves Send and SendStream."""

    def __init__(self, services: SendServices) -> None:
        self._services = services
        self._unique_keys: UniqueKeys | None = None

    def handlers(self) -> Sequence[Handler]:
        """Return what to serve."""
        return (unary(SEND, self.send), stream(SEND_STREAM, self.send_stream))

    async def send_stream(self, stream: SendServerStream, call: Call) -> None:
        """Serve one producer's stream."""
        first = await stream.read()
        if first is None:
            return
        if first.WhichOneof("request") != "open":
            raise InvalidParameter(
                ResponseCode.INVALID_PARAMETER, "a SendStream begins with `open`"
            )
        services = self._services
        sender = self._sender(
            call, first.open.auto_create if first.open.HasField("auto_create") else None
        )
        opened = messages.SendStreamOpened(
            born_host=sender.born_host,
            store_host=sender.store_host,
            properties_suffix=services.properties_suffix(),
            body_bytes_max=BODY_BYTES_MAX,
            properties_bytes_max=PROPERTIES_BYTES_MAX,
            batch_bytes_max=BATCH_BYTES_MAX,
        )
        await stream.write(messages.SendStreamReply(opened=opened))
        await SendingStream(services, sender, stream).run()

    async def send(self, request: messages.SendRequest, call: Call) -> messages.SendReply:
        """Store one message and answer when it is safe."""
        services = self._services
        if services.is_closing():
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is closing")
        sender = self._sender(
            call, request.auto_create if request.HasField("auto_create") else None
        )
        record, key, queue_id = self._record(request, sender)
        if not services.intake.has_room(0):
            raise refusal(ResponseCode.SYSTEM_BUSY, "too many bytes wait for their answers")
        services.intake.took(len(record))
        try:
            stored = await services.store(record, len(record).to_bytes(4, "little"), sender)
            if stored.refused:
                _, code, remark = stored.refused[0]
                raise refusal(code, remark)
            unsafe = await _until_safe(*services.safe(stored.end))
        finally:
            services.intake.answered(len(record))
        reply = messages.SendReply(
            message_id=key,
            offset_message_id=offset_message_id(
                sender.store_host, PhysicalOffset(int(stored.physical_offsets[0]))
            ),
            queue_id=queue_id,
            queue_offset=int(stored.queue_offsets[0]),
        )
        if unsafe is not None:
            reply.status.CopyFrom(unsafe)
        return reply

    def _sender(self, call: Call, auto_create: messages.AutoCreate | None) -> Sender:
        """Return who calls. A caller that says nothing of new topics lets them be created."""
        return Sender(
            born_host_bytes(call.peer),
            self._services.store_host(),
            AUTO_CREATE_TOPIC if auto_create is None else auto_create.template_topic,
            0 if auto_create is None else auto_create.queues,
        )

    def _record(self, request: messages.SendRequest, sender: Sender) -> tuple[bytes, str, int]:
        """Return the record of a typed request, its unique key and its queue id.

        Raises:
            TernError: The message is illegal, or its topic takes none.
        """
        services = self._services
        topic = check_topic(request.topic)
        if len(request.body) > BODY_BYTES_MAX:
            raise IllegalMessage(
                f"message for {topic!r}: body has {len(request.body)} bytes, "
                f"at most {BODY_BYTES_MAX} fit"
            )
        if request.sys_flag & ~FLAG_COMPRESSION_MASK:
            raise IllegalMessage(f"message for {topic!r}: sys_flag has other bits than compression")
        if request.queue_id < -1:
            raise refusal(
                ResponseCode.INVALID_PARAMETER, f"queue id {request.queue_id} of {topic!r}"
            )
        properties = dict(request.properties)
        for name, value in properties.items():
            if name in names.BROKERS_OWN:
                raise IllegalMessage(
                    f"message for {topic!r}: property {name!r} is the broker's own"
                )
            check_property(name, value)
        key = properties.setdefault(names.UNIQUE_KEY, "") or self._next_key(sender)
        properties[names.UNIQUE_KEY] = key
        encoded = encode_properties(properties) + services.properties_suffix()
        if len(encoded) > PROPERTIES_BYTES_MAX:
            raise IllegalMessage(
                f"message for {topic!r}: properties have {len(encoded)} bytes with what the broker "
                f"adds, at most {PROPERTIES_BYTES_MAX} fit"
            )
        queue_id = request.queue_id
        if queue_id < 0:
            config = services.writer.find_or_create(topic, sender)
            if isinstance(config, Refusal):
                raise refusal(*config)
            if config.write_queues < 1:
                remark = f"topic {topic!r} has no queue to write"
                raise refusal(ResponseCode.NO_PERMISSION, remark)
            queue_id = services.random.randrange(config.write_queues)
        record = encode_record(
            topic=topic.encode(),
            queue_id=queue_id,
            body=request.body,
            properties=encoded,
            flag=request.flag,
            sys_flag=request.sys_flag,
            born_at_ms=request.born_at_ms or services.clock.wall_ms(),
            born_host=sender.born_host,
            store_host=sender.store_host,
        )
        return record, key, queue_id

    def _next_key(self, sender: Sender) -> str:
        if self._unique_keys is None:
            drawn = self._services.random.getrandbits(48)
            self._unique_keys = UniqueKeys(
                address=sender.store_host[:-4], process_id=drawn >> 32, salt=drawn
            )
        return self._unique_keys.next(self._services.clock.wall_ms()).decode()


class SendingStream:
    """One producer's stream. Reading and appending go on while earlier batches wait for the disk.

    Answers leave in the order of the requests: either at once, from the loop that reads, when
    nothing waits; or from a second task, started when the first batch has to wait.
    """

    def __init__(self, services: SendServices, sender: Sender, stream: SendServerStream) -> None:
        self._services = services
        self._sender = sender
        self._stream = stream
        self._unanswered_bytes = 0
        self._pending: deque[Pending] = deque()
        self._changed = asyncio.Event()
        self._is_lost = False
        self._look = asyncio.Event()

    async def run(self) -> None:
        """Serve until the producer has finished and everything is answered."""
        async with OwnedTasks() as tasks:
            try:
                await self._read_batches(tasks)
                await self._until(lambda: not self._pending)
            except ConnectionLost:
                return
            finally:
                self._services.intake.answered(self._unanswered_bytes)
                self._services.intake.unwatch(self)

    async def _read_batches(self, tasks: OwnedTasks) -> None:
        services, clock = self._services, self._services.clock
        has_answerer = False
        while not self._is_lost:
            if not services.intake.has_room(self._unanswered_bytes):
                await self._room()
            if len(self._pending) >= _PENDING_MAX:
                await self._until(lambda: len(self._pending) < _PENDING_MAX)
            request = await self._stream.read()
            if request is None:
                return
            began_ms = clock.monotonic_ms()
            pending = await self._take(request)
            if not pending.safe and not self._pending:
                await self._stream.write(pending.reply)
                self._answered(pending)
            else:
                self._pending.append(pending)
                if has_answerer:
                    self._changed.set()
                else:
                    has_answerer = True
                    tasks.spawn(self._answer(), "send-answers")
            if clock.monotonic_ms() - began_ms >= _YIELD_AFTER_MS:
                await asyncio.sleep(0)

    async def _take(self, request: messages.SendStreamRequest) -> Pending:
        """Store one batch and return its answer."""
        services = self._services
        if request.WhichOneof("request") != "batch":
            raise InvalidParameter(
                ResponseCode.INVALID_PARAMETER, "a SendStream goes on with `batch`"
            )
        batch = request.batch
        records = batch.records
        is_busy = not services.intake.has_room(self._unanswered_bytes)
        self._unanswered_bytes += len(records)
        services.intake.took(len(records))
        if is_busy:
            return _refused(
                ResponseCode.SYSTEM_BUSY, "too many bytes wait for their answers", len(records)
            )
        if services.is_closing():
            return _refused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is closing", len(records)
            )
        try:
            stored = await services.store(records, batch.record_sizes, self._sender)
        except TernError as error:
            refused = refusal_of(error)
            if refused is None:
                raise
            return _refused(refused.code, refused.remark, len(records))
        pending = Pending(messages.SendStreamReply(stored=_reply(stored)), len(records))
        pending.safe, pending.deadline_s = services.safe(stored.end)
        return pending

    async def _answer(self) -> None:
        """Write answers in order, each when its batch is safe."""
        try:
            while True:
                while self._pending:
                    pending = self._pending[0]
                    unsafe = await _until_safe(pending.safe, pending.deadline_s)
                    if unsafe is not None:
                        pending.reply.stored.status.CopyFrom(unsafe)
                    await self._stream.write(pending.reply)
                    self._pending.popleft()
                    self._answered(pending)
                self._changed.clear()
                await self._changed.wait()
        except (ConnectionLost, ClosedError):
            self._is_lost = True  # the reading half is told by the transport
            self._look.set()

    def _answered(self, pending: Pending) -> None:
        self._unanswered_bytes -= pending.request_bytes
        self._services.intake.answered(pending.request_bytes)

    async def _room(self) -> None:
        """Leave the stream unread until there is room, but not for too long."""
        await self._until(
            lambda: self._services.intake.has_room(self._unanswered_bytes),
            timeout_s=self._services.live.broker.unread_max_ms / 1000,
        )

    async def _until(
        self, condition: Callable[[], bool], *, timeout_s: float | None = None
    ) -> None:
        """Wait until `condition` holds, which answers bring about, or the time is over."""
        self._services.intake.watch(self, self._look.set)
        try:
            async with asyncio.timeout(timeout_s):
                while not condition() and not self._is_lost:
                    self._look.clear()
                    await self._look.wait()
        except TimeoutError:
            return
        finally:
            self._services.intake.unwatch(self)


_TIMED_OUT: Final = "stored, but it or its topic is not on disk in time; that goes on"


def _reply(stored: Stored) -> messages.SendBatchReply:
    reply = messages.SendBatchReply(
        queue_offsets=stored.queue_offsets.astype("<i8", copy=False).tobytes(),
        physical_offsets=stored.physical_offsets.astype("<i8", copy=False).tobytes(),
        stored_at_ms=stored.stored_at_ms,
    )
    for index, code, remark in stored.refused:
        reply.refused.add(index=index, status={"code": code, "remark": remark})
    return reply


def _refused(code: int, remark: str, request_bytes: int) -> Pending:
    """Return the answer for a batch of which nothing was stored."""
    reply = messages.SendBatchReply(status={"code": code, "remark": remark})
    return Pending(messages.SendStreamReply(stored=reply), request_bytes)


async def _until_safe(
    safe: Sequence[asyncio.Future[None]], deadline_s: float
) -> common.Status | None:
    """Wait until what was appended is safe; return what to say when it does not become so.

    It lies in the log, so a plain refusal would be untrue, whatever happens.
    """
    if not safe:
        return None
    try:
        async with asyncio.timeout_at(deadline_s):
            for future in safe:
                await future
    except TimeoutError:
        return common.Status(code=ResponseCode.FLUSH_DISK_TIMEOUT, remark=_TIMED_OUT)
    except StoreError as error:
        # What lies in the log may or may not be on disk, and the broker will not find out.
        return common.Status(
            code=ResponseCode.SERVICE_NOT_AVAILABLE,
            remark=f"appended, and whether it is stored is not known: {error}",
            may_have_happened=True,
        )
    return None
