"""DescribeStore: what the store has counted, for operators.

Source: RocketMQ `AdminBrokerProcessor.getBrokerRuntimeInfo`, `StoreStatsService`.
"""

from collections.abc import Sequence

from ternmq_broker.steady_clock import SteadyClock
from ternmq_broker.storage.verification import StoreVerification
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import DESCRIBE_STORE
from ternmq_store.message_store import MessageStore
from ternmq_store.store_statistics import PUT_TIME_BORDERS_MS

_NO_BORDER = 0


class StoreService:
    """Serves the store's part of Admin.

    Args:
        store: Open.
        verification: Verifies it.
        clock: Clock of the broker; also gives the time of opening.
    """

    def __init__(
        self, store: MessageStore, verification: StoreVerification, clock: SteadyClock
    ) -> None:
        self._store = store
        self._verification = verification
        self._clock = clock
        self._opened_at_ms = clock.wall_ms()

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of the service."""
        return (unary(DESCRIBE_STORE, self.describe_store),)

    async def describe_store(
        self, request: admin.DescribeStoreRequest, call: Call
    ) -> admin.DescribeStoreReply:
        """Return the counters of the store since it was opened."""
        store, counted = self._store, self._store.statistics
        reads = store.reads
        reply = admin.DescribeStoreReply(
            opened_at_ms=self._opened_at_ms,
            puts=counted.puts,
            puts_failed=counted.puts_failed,
            put_messages=counted.put_messages,
            put_bytes=counted.put_bytes,
            put_average_bytes=counted.put_average_bytes,
            put_longest_ms=counted.put_longest_ms,
            gets_found=counted.gets_found,
            gets_missed=counted.gets_missed,
            got_messages=counted.got_messages,
            gets_from_disk=counted.gets_from_disk,
            get_longest_ms=counted.get_longest_ms,
            dispatch_behind_bytes=store.confirm_offset - store.dispatched_offset,
            dispatch_behind_ms=store.dispatch_behind_ms,
            log_files=reads.log_files,
            queues=len(reads.queues()),
            bad_records=reads.bad_records,
            wrong_units=reads.repair.wrong_units,
            mended_units=reads.repair.mended_units,
            verification=self._describe_verification(),
            clock=admin.BrokerClock(**self._clock.state()._asdict()),
            failure="" if store.failure is None else str(store.failure),
        )
        borders = (*PUT_TIME_BORDERS_MS, _NO_BORDER)
        for below_ms, puts in zip(borders, counted.put_times, strict=True):
            reply.put_times.add(below_ms=below_ms, puts=puts)
        for rate in counted.rates():
            reply.rates.add(**rate._asdict())
        for damaged in (*reads.quarantine.ranges, *reads.dangling_units):
            reply.damaged.add(start=damaged.start, end=damaged.end, reason=damaged.reason)
        for topic, put in sorted(counted.topics.items()):
            reply.topics.add(topic=topic, messages=put.messages, bytes=put.bytes)
        for (group, topic, queue_id), behind in sorted(counted.behind.items()):
            reply.groups.add(group=group, topic=topic, queue_id=queue_id, **behind._asdict())
        for message in self._verification.passed:
            reply.passed.add(**message._asdict())
        return reply

    def _describe_verification(self) -> admin.StoreVerification:
        verification = self._store.verification
        return admin.StoreVerification(
            bytes_per_s=self._verification.bytes_per_s,
            offset=verification.offset,
            end_offset=self._store.dispatched_offset,
            rounds=verification.rounds,
            round_ended_at_ms=verification.ended_at_ms,
            units_mended=verification.units_mended,
            records_damaged=verification.records_damaged,
            entries_mended=verification.entries_mended,
        )
