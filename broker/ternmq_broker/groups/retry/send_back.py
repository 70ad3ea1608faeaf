"""The service of SendBack, which stores copies of messages that members could not consume."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.groups.retry.copy_search import CopySearch, copy_name
from ternmq_broker.groups.retry.group_topics import GroupTopics, retry_topic
from ternmq_broker.groups.retry.retry_policy import (
    FailedMessage,
    SendBackAction,
    SendBackDecision,
    decide_retry,
    why_not,
)
from ternmq_broker.state.clients import check_client_id
from ternmq_broker.state.lock_table import LockTable
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_broker.storage.system_topic_routing import delayed
from ternmq_model.errors import (
    CorruptRecord,
    IllegalMessage,
    MessageRefused,
    RefusedError,
    TernError,
    invalid,
    refusal,
)
from ternmq_model.group_settings import GroupSettings
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import Record, decode_record
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.converters import status_of
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import SEND_BACK

logger = logging.getLogger(__name__)

MESSAGES_MAX: Final = 1024
_PUT_BYTES_MAX: Final = 1 << 20
"""Bytes of copies that are stored together. A request takes at most so much memory and one message
more."""


@dataclass(slots=True)
class _SendBackBatch:
    """Copies that are stored together. Owned by one call."""

    records: list[InternalRecord] = field(default_factory=list[InternalRecord])
    messages: list[tuple[int, SendBackDecision]] = field(
        default_factory=list[tuple[int, SendBackDecision]]
    )
    """Position of each record's message in the request, and the decision about the message."""

    body_bytes: int = 0


@dataclass(kw_only=True, slots=True, eq=False)
class SendBackService:
    """Handler of SendBack."""

    env: BrokerEnvironment
    writer: InternalWriter
    group_topics: GroupTopics
    locks: LockTable
    _under_way: dict[tuple[str | None, ...], asyncio.Event] = field(
        default_factory=dict[tuple[str | None, ...], asyncio.Event], init=False
    )
    """Copies that are searched for or being stored; each event is set at the end."""

    def handlers(self) -> Sequence[Handler]:
        """Return the handler of SendBack."""
        return (unary(SEND_BACK, self.send_back),)

    async def send_back(self, request: groups.SendBackRequest, call: Call) -> groups.SendBackReply:
        """Store a copy of each message, for a retry or as a dead letter.

        An outcome is 0 once the copy is as safe as the broker promises its senders. Until then the
        member holds the message. A stored copy counts whoever sent the message back: a member that
        received it again after a crash, or a member whose answer was lost.
        """
        self.env.admission.check()
        if len(request.messages) > MESSAGES_MAX:
            remark = f"{len(request.messages)} messages; at most {MESSAGES_MAX} go back at once"
            raise invalid(remark)
        with self.env.admission.storing():
            return groups.SendBackReply(outcomes=await self._send_back(request))

    async def _send_back(self, request: groups.SendBackRequest) -> Sequence[common.Status]:
        check_client_id(request.client_id)
        group = self.env.tables.groups.use(request.group, now_ms=self.env.clock.wall_ms())
        outcomes = [common.Status() for _ in request.messages]
        batch = _SendBackBatch()
        dropped = 0
        for index, failed in enumerate(request.messages):
            try:
                decided = await self._decide(group, failed)
                if decided.action is SendBackAction.DROPPED:
                    dropped += 1
                else:
                    batch.records.append(self._stored_form(group, decided))
                    batch.messages.append((index, decided))
                    batch.body_bytes += len(decided.record.body)
            except TernError as error:
                outcomes[index].CopyFrom(status_of(error))
            if batch.body_bytes >= _PUT_BYTES_MAX:
                await self._put_new(group.group, batch, request.messages, outcomes)
                batch = _SendBackBatch()
        await self._put_new(group.group, batch, request.messages, outcomes)
        if dropped:
            why = "the group has no retry queues"
            logger.warning(
                "messages dropped group=%s messages=%s reason=%s", group.group, dropped, why
            )
        return outcomes

    async def _decide(self, group: GroupSettings, failed: groups.FailedMessage) -> SendBackDecision:
        """Return the decision about one message.

        Raises:
            TernError: The message cannot be sent back.
        """
        # The lock is checked before the record: a member without the lock must send no copies back,
        # even if the record is gone.
        if (fenced := self._fenced(group.group, failed)) is not None:
            raise fenced
        record = await self._record(failed.physical_offset)
        version = self.env.tables.offsets.version(group.group, failed.topic, failed.queue_id)
        failure = FailedMessage(
            failed.message_id,
            failed.topic,
            failed.queue_id,
            failed.queue_offset,
            failed.delay_level,
            failed.attempts_max,
            failed.reconsume_times,
            max(failed.version, version),
        )
        if (error := why_not(record, failure)) is not None:
            raise error
        if failed.version > version:
            # The copy would look like that of a failure after a later seek.
            remark = f"version {failed.version} of the offset is not committed; {version} is stored"
            raise refusal(ResponseCode.PULL_OFFSET_MOVED, remark)
        queue_id = self.env.random.randrange(max(1, group.retry_queues))
        return decide_retry(record, failure, group, queue_id=queue_id)

    async def _record(self, offset: int) -> Record:
        """Return the record that begins at `offset`.

        Raises:
            MessageNotFound: The record was deleted, or none ever began there.
            RefusedError: The disk failed.
        """
        reader = self.env.reader
        least = reader.store.min_physical
        data = await reader.record(PhysicalOffset(offset)) if offset >= least else None
        if data is not None:
            try:
                record = decode_record(data, at=PhysicalOffset(offset))
                if record is not None:
                    return record
            except CorruptRecord as error:
                raise refusal(ResponseCode.QUERY_NOT_FOUND, str(error)) from None
        if offset < reader.store.min_physical:
            remark = (
                f"the log begins at {reader.store.min_physical}: the record at {offset} is gone"
            )
        else:
            remark = f"no record begins at physical offset {offset}"
        raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)

    def _stored_form(self, group: GroupSettings, decided: SendBackDecision) -> InternalRecord:
        """Return the record to store now, and create its topic.

        Raises:
            RefusedError: The group's topic may not be written, or no more topics fit.
        """
        if decided.action is SendBackAction.DEAD:
            self.group_topics.dead_letters(group.group)
            return decided.record
        self.group_topics.retry(group)
        return delayed(decided.record, decided.delay_level)

    def _fenced(self, group: str, failed: groups.FailedMessage) -> RefusedError | None:
        """Return the refusal of a member without the lock of the queue; None if it may act."""
        now_ms = self.env.clock.monotonic_ms()
        return self.locks.check(
            group, failed.topic, failed.queue_id, failed.lock_token, now_ms=now_ms
        )

    async def _put_new(
        self,
        group: str,
        batch: _SendBackBatch,
        failed: Sequence[groups.FailedMessage],
        outcomes: Sequence[common.Status],
    ) -> None:
        """Store missing copies, after other calls that store copies of the same messages."""
        names = dict.fromkeys(map(copy_name, batch.records))  # in order: runs must repeat
        while (name := next((each for each in names if each in self._under_way), None)) is not None:
            await self._under_way[name].wait()
        over = asyncio.Event()
        self._under_way.update(dict.fromkeys(names, over))
        try:
            await self._search_and_put(group, batch, failed, outcomes)
        finally:
            for name in names:
                del self._under_way[name]
            over.set()

    async def _search_and_put(
        self,
        group: str,
        batch: _SendBackBatch,
        failed: Sequence[groups.FailedMessage],
        outcomes: Sequence[common.Status],
    ) -> None:
        """Store missing copies of queues whose locks the member still holds.

        A lock may have ended while records were read.
        """
        store, missing = self.env.reader.store, _SendBackBatch()
        start = store.deletions.get(retry_topic(group), PhysicalOffset(0))
        try:
            ends = await CopySearch(self.env.reader).find(batch.records, start=start)
        except RefusedError as error:
            for index, _ in batch.messages:
                outcomes[index].CopyFrom(status_of(error))
            return
        for row, (record, (index, decided)) in enumerate(
            zip(batch.records, batch.messages, strict=True)
        ):
            why_not_now = self._fenced(group, failed[index])
            if why_not_now is None and ends.get(row, 0) > store.confirm_offset:
                remark = "its copy is stored but not yet safe"
                why_not_now = refusal(ResponseCode.SYSTEM_BUSY, remark)
            if why_not_now is not None:
                outcomes[index].CopyFrom(status_of(why_not_now))
            elif row not in ends:
                missing.records.append(record)
                missing.messages.append((index, decided))
        if missing.records:
            await self._put(group, missing, outcomes)

    async def _put(
        self, group: str, batch: _SendBackBatch, outcomes: Sequence[common.Status]
    ) -> None:
        """Store a batch and record the outcomes of its messages."""
        try:
            await self.writer.put(batch.records)
        except TernError as error:
            if len(batch.records) > 1 and isinstance(error, (IllegalMessage, MessageRefused)):
                # One record cannot be stored at all; the others must be stored without it.
                for record, message in zip(batch.records, batch.messages, strict=True):
                    await self._put(group, _SendBackBatch([record], [message]), outcomes)
                return
            for index, _ in batch.messages:
                outcomes[index].CopyFrom(status_of(error))
            logger.warning(
                "messages not sent back group=%s messages=%s err=%s",
                group,
                len(batch.records),
                error,
            )
            return
        for _, decided in batch.messages:
            count = self.env.statistics.sent_back_by
            if decided.action is SendBackAction.DEAD:
                count = self.env.statistics.died
            count(group, decided.origin_topic)
