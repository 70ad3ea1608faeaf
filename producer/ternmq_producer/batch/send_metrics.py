"""Metrics of one producer's batches, recorded once for each answer of a broker."""

from collections import Counter
from collections.abc import Sequence

from ternmq_client.telemetry.client_telemetry import ClientTelemetry, error_type
from ternmq_client.telemetry.harmless import harmless
from ternmq_client.telemetry.operation_key import OperationKey
from ternmq_model.errors import TernError
from ternmq_model.message_id import host_text
from ternmq_producer.batch.batch_reply import SendFailure
from ternmq_producer.batch.batcher import ProducerBatch
from ternmq_producer.batch.pending_send import Pending


class SendMetrics:
    """Counts of sent messages, and durations of batches. Owned by one producer."""

    def __init__(self, telemetry: ClientTelemetry) -> None:
        self._telemetry = telemetry
        self._keys: dict[tuple[bytes, bytes], OperationKey] = {}

    @harmless
    def written(self, batch: ProducerBatch) -> None:
        """Record the begin of the wait for the answer to `batch`."""
        batch.written_at_s = self._telemetry.now_s()

    @harmless
    def answered(
        self, batch: ProducerBatch, failures: Sequence[SendFailure], store_host: bytes
    ) -> None:
        """Record the answer of a broker to `batch`, which did not store the `failures`."""
        counts = topics_of([*batch.singles, *batch.parts])
        if failures:
            failed = topics_of([failure.pending for failure in failures])
            for topic in counts:
                counts[topic] -= failed.get(topic, 0)
        for topic, count in counts.items():
            if count:
                self._telemetry.count_sent(self._key(store_host, topic), count)
        key = self._key(store_host, next(iter(counts)) if len(counts) == 1 else b"")
        if failures:
            key = key._replace(error=error_type(failures[0].error))
        self._telemetry.record(key, batch.written_at_s)

    @harmless
    def failed(self, pending: Pending, error: TernError) -> None:
        """Count messages that failed for good."""
        key = OperationKey("send", topic=pending.topic.decode(), error=error_type(error))
        self._telemetry.count_sent(key, len(pending))

    def _key(self, store_host: bytes, topic: bytes) -> OperationKey:
        key = self._keys.get((store_host, topic))
        if key is None:
            key = OperationKey("send", host_text(store_host), topic.decode())
            self._keys[store_host, topic] = key
        return key


def topics_of(pending: Sequence[Pending]) -> dict[bytes, int]:
    """Return the number of messages by topic. Pure."""
    topics = {one.topic for one in pending}
    if len(topics) == 1:
        return {topics.pop(): sum(map(len, pending))}
    counts: Counter[bytes] = Counter()
    for one in pending:
        counts[one.topic] += len(one)
    return counts
