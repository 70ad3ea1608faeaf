"""Send and SendStream: RPCs of producers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ternmq_broker.send.message_writer import SenderInfo
from ternmq_broker.send.processor import SendProcessor
from ternmq_broker.send.stream import SendingStream, SendServerStream
from ternmq_broker.storage.record_addresses import born_host_bytes
from ternmq_model import properties as names
from ternmq_model.arrays import pack_int32s
from ternmq_model.errors import IllegalMessage, invalid, refusal
from ternmq_model.message_id import UniqueKeys, ip_bytes, offset_message_id
from ternmq_model.names import AUTO_CREATE_TOPIC, check_topic
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import check_property, encode_properties
from ternmq_model.record.format import (
    BODY_BYTES_MAX,
    FLAG_COMPRESSION_MASK,
    PROPERTIES_BYTES_MAX,
    encode_record,
)
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import Call, Handler, stream, unary
from ternmq_remoting.service_methods import SEND, SEND_STREAM

BATCH_BYTES_MAX: Final = 1 << 20
"""Limit of a batch, as the opened stream announces it; one larger record may be sent alone."""


class SendService:
    """Handlers of Send and SendStream."""

    def __init__(self, processor: SendProcessor) -> None:
        self._processor = processor
        self._unique_keys: UniqueKeys | None = None
        self._streams: dict[tuple[str | None, str, str], SendingStream] = {}
        """Newest stream of each producer, by user, client and incarnation."""

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of Send and SendStream."""
        return (unary(SEND, self.send), stream(SEND_STREAM, self.send_stream))

    async def send_stream(self, stream: SendServerStream, call: Call) -> None:
        """Serve one producer's stream."""
        first = await stream.read()
        if first is None:
            return
        if first.WhichOneof("request") != "open":
            raise invalid("a SendStream begins with `open`")
        processor = self._processor
        name = (call.permits.user, first.open.client_id, first.open.incarnation)
        while first.open.incarnation and (old := self._streams.get(name)) is not None:
            await old.displace()
            if self._streams.get(name) is old:
                del self._streams[name]
        sender = self._sender(
            call, first.open.auto_create if first.open.HasField("auto_create") else None
        )
        opened = messages.SendStreamOpened(
            born_host=sender.born_host,
            store_host=sender.store_host,
            properties_suffix=processor.properties_suffix(),
            body_bytes_max=BODY_BYTES_MAX,
            properties_bytes_max=PROPERTIES_BYTES_MAX,
            batch_bytes_max=BATCH_BYTES_MAX,
            looks_up_retries=processor.duplicates is not None,
        )
        sending = SendingStream(processor, sender, stream)
        if first.open.incarnation:
            self._streams[name] = sending
        try:
            await stream.write(messages.SendStreamReply(opened=opened))
            await sending.run()
        finally:
            if self._streams.get(name) is sending:
                del self._streams[name]

    async def send(self, request: messages.SendRequest, call: Call) -> messages.SendReply:
        """Store one message and answer when it is safe."""
        processor, replies = self._processor, self._processor.replies
        is_reply = replies is not None and replies.is_reply(request.topic, request.properties)
        if processor.admission.is_closing or not is_reply:
            processor.check_takes()
        if not processor.admission.has_capacity(0):
            raise refusal(ResponseCode.SYSTEM_BUSY, "too many received bytes are unanswered")
        sender = self._sender(
            call, request.auto_create if request.HasField("auto_create") else None
        )
        record, key, queue_id = self._record(request, sender)
        if replies is not None and is_reply:
            sender = replace(sender, is_reply=True)
            replies.forward(record, request.properties)
            if not replies.are_stored:
                nowhere = offset_message_id(sender.store_host, PhysicalOffset(0))
                return messages.SendReply(
                    message_id=key, offset_message_id=nowhere, queue_id=queue_id, queue_offset=-1
                )
        processor.admission.took(len(record))
        try:
            stored = await processor.store(
                record, pack_int32s([len(record)]), sender, is_reply=is_reply
            )
            if stored.refused:
                _, code, remark = stored.refused[0]
                raise refusal(code, remark)
            status = await processor.until_safe(processor.ack_policy.begin(stored.end))
        finally:
            processor.admission.answered(len(record))
        reply = messages.SendReply(
            message_id=key,
            offset_message_id=offset_message_id(
                sender.store_host, PhysicalOffset(int(stored.physical_offsets[0]))
            ),
            queue_id=queue_id,
            queue_offset=int(stored.queue_offsets[0]),
        )
        if status is not None:
            reply.status.CopyFrom(status)
        return reply

    def _sender(self, call: Call, auto_create: messages.AutoCreate | None) -> SenderInfo:
        """Return what is known of a caller; without settings, topics are created."""
        return SenderInfo(
            born_host_bytes(call.peer),
            self._processor.store_host(),
            AUTO_CREATE_TOPIC if auto_create is None else auto_create.template_topic,
            0 if auto_create is None else auto_create.queues,
            call.permits,
        )

    def _record(self, request: messages.SendRequest, sender: SenderInfo) -> tuple[bytes, str, int]:
        """Return the record of a typed request, its unique key and its queue id.

        Raises:
            TernError: The message is illegal, or its topic accepts none.
        """
        processor = self._processor
        topic = check_topic(request.topic)
        if len(request.body) > BODY_BYTES_MAX:
            raise IllegalMessage(
                f"message for {topic!r}: body has {len(request.body)} bytes, "
                f"at most {BODY_BYTES_MAX} fit"
            )
        if request.sys_flag & ~FLAG_COMPRESSION_MASK:
            raise IllegalMessage(f"message for {topic!r}: sys_flag has other bits than compression")
        if request.queue_id < -1:
            raise invalid(f"queue id {request.queue_id} of {topic!r}")
        properties = dict(request.properties)
        for name, value in properties.items():
            if name in names.BROKERS_OWN:
                raise IllegalMessage(
                    f"message for {topic!r}: property {name!r} is reserved for the broker"
                )
            check_property(name, value)
        key = properties.setdefault(names.UNIQUE_KEY, "") or self._next_key(sender)
        properties[names.UNIQUE_KEY] = key
        encoded = encode_properties(properties) + processor.properties_suffix()
        if len(encoded) > PROPERTIES_BYTES_MAX:
            raise IllegalMessage(
                f"message for {topic!r}: properties have {len(encoded)} bytes with what the broker "
                f"adds, at most {PROPERTIES_BYTES_MAX} fit"
            )
        queue_id = request.queue_id
        if queue_id < 0:
            config = processor.writer.find_or_create(topic, sender)
            if config.write_queues < 1:
                remark = f"topic {topic!r} has no queue to write"
                raise refusal(ResponseCode.NO_PERMISSION, remark)
            queue_id = processor.random.randrange(config.write_queues)
        record = encode_record(
            topic=topic.encode(),
            queue_id=queue_id,
            body=request.body,
            properties=encoded,
            flag=request.flag,
            sys_flag=request.sys_flag,
            born_at_ms=request.born_at_ms or processor.clock.wall_ms(),
            born_host=sender.born_host,
            store_host=sender.store_host,
        )
        return record, key, queue_id

    def _next_key(self, sender: SenderInfo) -> str:
        if self._unique_keys is None:
            drawn = self._processor.random.getrandbits(48)
            self._unique_keys = UniqueKeys(
                address=ip_bytes(sender.store_host), process_id=drawn >> 32, salt=drawn
            )
        return self._unique_keys.next(self._processor.clock.wall_ms()).decode()
