"""Settings of a producer."""

from dataclasses import dataclass
from typing import Final, Literal

from ternmq_client.retry_policy import RetryPolicy
from ternmq_model.arguments import check_kinds, check_range
from ternmq_model.compression import Format, check_format
from ternmq_model.errors import ConfigError, IllegalName
from ternmq_model.names import AUTO_CREATE_TOPIC, check_topic

BATCH_BYTES_MAX: Final = 1 << 20
"""Most bytes of records in one transport batch; one larger record travels alone."""

BATCH_BYTES_MIN: Final = 4 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class ProducerConfig:
    """Sizes in bytes, durations in seconds."""

    send_timeout_s: float = 3.0
    """Time limit for one message: waiting for room, sending, trying again."""

    fail_fast: bool = False
    """A send fails with `Unreachable` at once, instead of waiting for `send_timeout_s`, while no
    broker of its topic can be reached; a message with an order, while its own broker cannot.
    The brokers are tried again in the background, at most 1 s apart."""

    attempts_max: int = 3
    """Most attempts for one message, the first one included. A broker that cannot be reached does
    not count: it is waited for until `send_timeout_s` is over."""

    retry_delay_s: float = 0.1
    """Ceiling of the wait before the second attempt at the same broker; doubles up to 1 s."""

    duplicates_allowed: bool = True
    """A message whose answer was lost may be sent to another broker, or to one that has no index:
    it may then be stored twice. When False, only the broker that may have it is asked again, and
    where it cannot tell, the message fails with an error whose `may_have_happened` is True."""

    retry_another_broker_when_not_ok: bool = False
    """A message that is stored, but not as safely as its broker was asked to (see `SendStatus`), is
    sent to another broker as well, if its topic has one: the first SEND_OK counts, and consumers
    may get it twice. Not for ordered messages, `send_many` and `send_batch`, nor where
    `duplicates_allowed` is False."""

    buffer_bytes: int = 64 << 20
    """Memory for messages that are waiting or unanswered. When it is used up, sends wait."""

    batch_bytes: int = BATCH_BYTES_MAX
    """Most bytes of records in one batch."""

    batches_unanswered_max: int = 2
    """Batches that may travel to one broker before the first is answered. 1 or 2: what is sent
    meanwhile forms the next batch, so more would make batches smaller, not sending faster."""

    compression: Format | None = "zlib"
    """Format of bodies of `compress_over_bytes` and more, on the wire and on disk: `zlib`, or with
    the extra `compression` also `lz4` and `zstd`. None = as they are. A body that would not become
    shorter stays as it is; those of `send_batch` always do."""

    compression_level: int | None = None
    """0 to 9 for zlib, 0 to 16 for lz4, 1 to 22 for zstd. None = 5, 0 and 3."""

    compress_over_bytes: int = 4096
    """Shortest body that is compressed."""

    latency_fault_tolerance: bool = False
    """Avoid brokers that answered late or failed, for a time that `latency_fault_rule` says. Keyed
    and ordered messages stay on their queue all the same."""

    latency_fault_rule: Literal[4, 5] = 4
    """The table of latencies of which RocketMQ version: 4 avoids a broker that failed for 10
    minutes, 5 for 10 seconds."""

    creates_topics: bool = True
    """Ask brokers to create a topic that does not exist, if they are willing to."""

    topic_queues: int = 4
    """Queues on each broker of a topic that is so created, at most the template's."""

    template_topic: str = AUTO_CREATE_TOPIC
    """Topic whose settings such a topic gets."""

    def __post_init__(self) -> None:
        check_kinds("producer", self)
        try:
            check_topic(self.template_topic)
        except IllegalName as error:
            raise ConfigError("producer.template_topic", self.template_topic, error.rule) from None
        for name in ("send_timeout_s", "buffer_bytes", "topic_queues"):
            value: float = getattr(self, name)
            if not value > 0:
                raise ConfigError(f"producer.{name}", value, "must be above 0")
        if self.attempts_max < 1:
            raise ConfigError("producer.attempts_max", self.attempts_max, "must be 1 or more")
        if self.retry_delay_s < 0:
            raise ConfigError("producer.retry_delay_s", self.retry_delay_s, "must not be negative")
        check_range("producer.batch_bytes", self.batch_bytes, BATCH_BYTES_MIN, BATCH_BYTES_MAX)
        if self.compression is not None:
            check_format(self.compression, self.compression_level, setting="producer.compression")
        if self.compress_over_bytes < 1:
            setting = "producer.compress_over_bytes"
            raise ConfigError(setting, self.compress_over_bytes, "must be 1 or more")
        if self.latency_fault_rule not in (4, 5):
            rule = "must be one of [4, 5]"
            raise ConfigError("producer.latency_fault_rule", self.latency_fault_rule, rule)
        if self.batches_unanswered_max not in (1, 2):
            setting = "producer.batches_unanswered_max"
            raise ConfigError(setting, self.batches_unanswered_max, "must be 1 or 2")

    @property
    def retry(self) -> RetryPolicy:
        """The waits between attempts at the same broker."""
        return RetryPolicy(
            attempts_max=self.attempts_max,
            delay_s_first=self.retry_delay_s,
            delay_s_max=max(1.0, self.retry_delay_s),
        )
