"""Processor of sends: appends records and waits for their acknowledgement."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from ternmq_broker.config import BrokerConfig
from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.send.dedup import (
    DuplicateSearch,
    join_results,
    queue_ids_of,
    refused_all,
    rest_of,
)
from ternmq_broker.send.message_writer import MessageWriter, PutResult, SenderInfo
from ternmq_broker.send.request_reply import ReplyForwarder
from ternmq_broker.storage.ack_policy import (
    REMARKS,
    AckPolicy,
    PendingAck,
    append_with_space,
    in_doubt,
)
from ternmq_broker.storage.admission import Admission
from ternmq_model.arrays import INT32_BYTES, read_int32s
from ternmq_model.clock import Clock
from ternmq_model.errors import TernError, refusal
from ternmq_model.properties import CLUSTER, REGION, TRACE_ON, encode_properties
from ternmq_model.record.checksum import RESERVED_CHECKSUM
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import common_pb2 as common
from ternmq_remoting.status import refusal_from


@dataclass(frozen=True, kw_only=True, slots=True)
class SendProcessor:
    """Processor of sends. Its fields are owned by the broker's loop."""

    live: LiveSettings
    clock: Clock
    random: Random
    writer: MessageWriter
    ack_policy: AckPolicy
    """Decides when an append may be acknowledged."""

    admission: Admission
    properties_suffix: Callable[[], bytes]
    """Returns the properties that the broker adds to a message."""

    store_host: Callable[[], bytes]
    """Returns STOREHOST; refuses until the broker listens."""

    space_made: Callable[[], Awaitable[bool]]
    """Waits for the space that a refused append lacked, such as the log's next file; returns
    whether to try again."""

    duplicates: DuplicateSearch | None = None
    """Search for the records of a retried batch; None without an index."""

    replies: ReplyForwarder | None = None
    """Forwarder of replies to their requesters; None = replies are stored like other messages."""

    def check_takes(self) -> None:
        """Refuse messages of producers while this broker drains or closes.

        Raises:
            BrokerDraining: The broker drains or closes. Nothing was stored; another broker accepts
                the message.
        """
        if self.admission.is_closing:
            raise refusal(ResponseCode.GO_AWAY, "the broker is closing")
        if self.live.broker.draining:
            remark = "the broker is draining: it accepts no messages until `promote` or `undrain`"
            raise refusal(ResponseCode.GO_AWAY, remark)

    async def store(
        self,
        records: bytes,
        record_sizes: bytes,
        sender: SenderInfo,
        *,
        atomic: bool = False,
        is_reply: bool = False,
    ) -> PutResult:
        """Check and append records, and wait for space in the log if it is just being made.

        A draining broker stores replies, too: their requests were sent before, and the requesters
        wait.

        Raises:
            TernError: Nothing was stored.
        """

        def append() -> PutResult:
            if not is_reply:
                self.check_takes()
            self.ack_policy.check(is_sender=True)
            return self.writer.store(records, record_sizes, sender, atomic=atomic)

        return await append_with_space(append, self.space_made)

    async def until_safe(self, pending: PendingAck | None) -> common.Status | None:
        """Wait until an append is safe; return the status of an answer in doubt, else None.

        The records lie in the log, so a plain refusal would be untrue. The answer must leave at
        once afterwards: the store may fail at any time.
        """
        try:
            if pending is None:
                self.ack_policy.confirmations.check()
                return None
            code = await self.ack_policy.outcome(pending)
        except TernError as error:
            failed = refusal_from(in_doubt(error))
            return common.Status(code=failed.code, remark=failed.remark, may_have_happened=True)
        return None if code is None else common.Status(code=code, remark=REMARKS[code])

    async def store_again(
        self, records: bytes, record_sizes: bytes, sender: SenderInfo, *, atomic: bool
    ) -> PutResult:
        """Store the records of a retried batch that are not stored already, as `store` does.

        The result has the offsets of all records, also of those stored earlier. Other records are
        refused singly, unless their batch is atomic. Without an index all records are stored.

        Raises:
            TernError: No record was stored by this call, or found.
        """
        if len(record_sizes) % INT32_BYTES:  # for `store` to refuse
            return await self.store(records, record_sizes, sender, atomic=atomic)
        sizes = read_int32s(record_sizes)
        found = (
            await self.duplicates.find(records, sizes, sender.permits) if self.duplicates else {}
        )
        if not found:
            return await self.store(records, record_sizes, sender, atomic=atomic)
        rest, rest_sizes, rows = rest_of(records, sizes, found)
        stored = None
        if rest:
            try:
                stored = await self.store(rest, rest_sizes.tobytes(), sender, atomic=atomic)
            except TernError as error:
                if atomic:
                    raise
                refused = refusal_from(error)
                stored = refused_all(len(rows), refused.code, refused.remark)
        return join_results(len(sizes), queue_ids_of(records, sizes), found, rows, stored)


def properties_suffix(config: BrokerConfig, *, is_checksummed: bool) -> bytes:
    """Return the properties that end every record of this broker, a reserved checksum last.

    Source: RocketMQ `SendMessageProcessor`.
    """
    properties = {
        REGION: config.region,
        TRACE_ON: "true" if config.trace else "false",
        CLUSTER: config.cluster,
    }
    return encode_properties(properties) + (RESERVED_CHECKSUM if is_checksummed else b"")
