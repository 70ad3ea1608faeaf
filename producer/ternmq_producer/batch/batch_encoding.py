"""Encoding of batches: records in store format, back to back."""

from itertools import groupby
from operator import attrgetter
from typing import Final

from ternmq_model.arrays import Ints, pack_int32, pack_int32s
from ternmq_model.errors import IllegalMessage
from ternmq_model.message_id import UniqueKeys
from ternmq_model.properties import UNIQUE_KEY
from ternmq_model.record.encoder import RecordEncoder
from ternmq_model.record.format import OVERHEAD_BYTES, OVERHEAD_BYTES_MAX
from ternmq_model.unique_key_columns import NO_UNIQUE_KEYS, next_keys
from ternmq_producer.batch.atomic_batch import check_length
from ternmq_producer.batch.batcher import MANY, ProducerBatch
from ternmq_producer.batch.pending_send import (
    RECORD_EXTRA_BYTES,
    Pending,
    PendingBatch,
    PendingSend,
)
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.encoded_message import EncodedMessage, encode_send_batch

_UNIQUE_KEY_BYTES: Final = len(UNIQUE_KEY) + 2 + 56
"""Length of the longest property UNIQ_KEY, that of a host with an IPv6 address."""


class StreamFormat:
    """Format of records and limits from a broker's first reply on a stream.

    Args:
        opened: First reply of the broker.
        keys: Generator of the unique keys of all links of a producer.
    """

    def __init__(self, opened: messages.SendStreamOpened, keys: UniqueKeys) -> None:
        self.store_host = opened.store_host
        self._keys = keys
        self._body_bytes_max = opened.body_bytes_max
        self._properties_bytes_max = (
            opened.properties_bytes_max - _UNIQUE_KEY_BYTES - len(opened.properties_suffix)
        )
        self._surely_fits_bytes = min(self._body_bytes_max, self._properties_bytes_max)
        self._added_bytes = (
            OVERHEAD_BYTES
            + len(opened.born_host + opened.store_host)
            - 16  # of two IPv4 hosts
            + len(UNIQUE_KEY)
            + 2
            + keys.key_bytes
            + len(opened.properties_suffix)
        )
        extra = OVERHEAD_BYTES_MAX + _UNIQUE_KEY_BYTES + len(opened.properties_suffix)
        # Sizes were estimated before the broker was asked. With a suffix longer than expected,
        # every record may be larger by the difference, the smallest ones relatively the most.
        self.batch_bytes_max = opened.batch_bytes_max
        if extra > RECORD_EXTRA_BYTES:
            self.batch_bytes_max = self.batch_bytes_max * RECORD_EXTRA_BYTES // extra
        self._encoder = RecordEncoder(
            born_host=opened.born_host,
            store_host=opened.store_host,
            suffix=opened.properties_suffix,
            properties_bytes_max=opened.properties_bytes_max,
        )

    def take_illegal(self, batch: ProducerBatch) -> list[tuple[Pending, IllegalMessage]]:
        """Remove from `batch` the messages that this broker would refuse; return their errors."""
        limit = self._surely_fits_bytes
        if all(pending.record_bytes <= limit for pending in batch.singles) and all(
            (part.record_bytes if part.is_atomic else int(part.sizes.max())) <= limit
            for part in batch.parts
        ):
            return []
        checked = [(pending, self._rule_against(pending)) for pending in batch.one_by_one()]
        illegal = [(pending, rule) for pending, rule in checked if rule is not None]
        if illegal:
            batch.parts, batch.singles, batch.record_bytes = [], [], 0
            for pending, rule in checked:
                if rule is None:
                    batch.put(pending)
        return illegal

    def _rule_against(self, pending: Pending) -> IllegalMessage | None:
        topic = pending.topic.decode()
        if isinstance(pending, PendingBatch):
            # The bytes that a broker adds to each record are known only now.
            total = len(pending) * (self._added_bytes + len(pending.topic))
            bodies, properties = pending.bodies.sizes, pending.properties.sizes
            if bodies.max() > self._body_bytes_max or properties.max() > self._properties_bytes_max:
                return IllegalMessage(f"batch for {topic!r}: a message of it is too long")
            total += int(bodies.sum() + properties.sum())
            try:
                check_length(topic, total)
            except IllegalMessage as error:
                return error
            return None
        if len(pending.body) > self._body_bytes_max:
            return IllegalMessage(
                f"message for {topic!r}: body has {len(pending.body)} bytes, "
                f"at most {self._body_bytes_max} fit"
            )
        if len(pending.properties) > self._properties_bytes_max:
            return IllegalMessage(
                f"message for {topic!r}: properties have {len(pending.properties)} bytes, "
                f"at most {self._properties_bytes_max} fit beside those that are added"
            )
        return None

    def encode(self, batch: ProducerBatch, *, wall_ms: int, now_ms: int) -> EncodedMessage:
        """Return `batch` as a request, after assigning missing unique keys.

        Args:
            batch: Batch without messages that `take_illegal` would remove.
            wall_ms: Time of the wall clock.
            now_ms: Time of the monotonic clock.
        """
        behind_ms = wall_ms - now_ms
        if len(batch.singles) == 1 and not batch.parts:
            record = self._encode_one(batch.singles[0], wall_ms, behind_ms)
            size = pack_int32(len(record))
            is_retry = batch.is_retry
            return encode_send_batch(
                (record,), len(record), size, is_retry=is_retry, is_whole=False
            )
        pieces, sizes, records_bytes = list[bytes | memoryview](), list[bytes](), 0
        if len(batch.singles) < MANY:
            pieces += [self._encode_one(pending, wall_ms, behind_ms) for pending in batch.singles]
            sizes += [pack_int32(len(piece)) for piece in pieces]
            records_bytes = sum(map(len, pieces))
        else:
            topics = [pending.topic for pending in batch.singles]
            is_one = topics.count(topics[0]) == len(topics)
            groups = [batch.singles] if is_one else _by_topic(batch.singles)
            for group in groups:
                more, more_sizes = self._encode_group(group, wall_ms, behind_ms)
                pieces += more
                sizes.append(pack_int32s(more_sizes))
                records_bytes += int(more_sizes.sum())
        for part in batch.parts:
            if part.unique_keys is NO_UNIQUE_KEYS:
                part.unique_keys = next_keys(self._keys, len(part), wall_ms)
            more, more_sizes = self._encoder.encode_many(
                part.topic,
                part.queue_ids,
                part.bodies.pieces(),
                part.unique_keys,
                part.properties.pieces(),
                part.flags,
                born_at_ms=behind_ms + part.started_ms,
                sys_flags=part.sys_flags,
            )
            pieces += more
            sizes.append(pack_int32s(more_sizes))
            records_bytes += int(more_sizes.sum())
        return encode_send_batch(
            pieces,
            records_bytes,
            b"".join(sizes),
            is_retry=batch.is_retry,
            is_whole=batch.is_atomic,
        )

    def _encode_one(self, pending: PendingSend, wall_ms: int, behind_ms: int) -> bytes:
        if not pending.unique_key:
            pending.unique_key = self._keys.next(wall_ms)
        return self._encoder.encode(
            pending.topic,
            pending.queue.queue_id,
            pending.body,
            pending.unique_key,
            pending.properties,
            born_at_ms=behind_ms + pending.started_ms,
            flag=pending.flag,
            sys_flag=pending.sys_flag,
        )

    def _encode_group(
        self, singles: list[PendingSend], wall_ms: int, behind_ms: int
    ) -> tuple[list[bytes | memoryview], Ints]:
        """Encode messages of one topic by columns, which takes a third of the time."""
        keys = next_keys(self._keys, len(singles), wall_ms)
        for index, (pending, key) in enumerate(zip(singles, keys.tolist(), strict=True)):
            if not pending.unique_key:
                pending.unique_key = key
            else:
                keys[index] = pending.unique_key
        return self._encoder.encode_many(
            singles[0].topic,
            [pending.queue.queue_id for pending in singles],
            [pending.body for pending in singles],
            keys,
            [pending.properties for pending in singles],
            [pending.flag for pending in singles],
            born_at_ms=[behind_ms + pending.started_ms for pending in singles],
            sys_flags=[pending.sys_flag for pending in singles],
        )


def _by_topic(singles: list[PendingSend]) -> list[list[PendingSend]]:
    return [list(group) for _, group in groupby(singles, attrgetter("topic"))]
