"""Metrics of one producer's batches, recorded once for each answer of a broker."""

from collections import Counter
from collections.abc import Sequence

from ternmq_client.telemetry.client_telemetry import ClientTelemetry, error_type
from ternmq_model.errors import TernError
from ternmq_model.message_id import host_text
from ternmq_producer.batch.batch_reply import SendFailure
from ternmq_producer.batch.batcher import ProducerBatch
from ternmq_producer.batch.pending_send import Pending


class SendMetrics:
    """Counts of sent messages, and durations of batches. Owned by one producer."""

    def __init__(self, telemetry: ClientTelemetry) -> None:
        self._telemetry = telemetry
        self._addresses: dict[bytes, str] = {}

    def answered(
        self, batch: ProducerBatch, failures: Sequence[SendFailure], store_host: bytes
    ) -> None:
        """Record the answer of a broker to `batch`, which did not store the `failures`."""
        address = self._addresses.get(store_host)
        if address is None:
            address = self._addresses[store_host] = host_text(store_host)
        topics = topics_of([*batch.singles, *batch.parts])
        error = error_type(failures[0].error) if failures else ""
        topic = next(iter(topics)) if len(topics) == 1 else ""
        self._telemetry.answered("send", batch.written_at_s, address, topic=topic, error=error)
        if failures:
            topics.subtract(topics_of([failure.pending for failure in failures]))
        self._telemetry.sent({name: count for name, count in topics.items() if count}, address)

    def failed(self, pending: Pending, error: TernError) -> None:
        """Count messages that failed for good."""
        self._telemetry.sent(topics_of([pending]), error=error_type(error))


def topics_of(pending: Sequence[Pending]) -> Counter[str]:
    """Return the number of messages by topic. Pure."""
    by_name: dict[bytes, int] = {}
    for one in pending:
        by_name[one.topic] = by_name.get(one.topic, 0) + len(one)
    return Counter({topic.decode(): count for topic, count in by_name.items()})
