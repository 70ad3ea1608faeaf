"""Settings of the consumers."""

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ternmq_consumer.consume_status import SUSPEND_S_MAX, SUSPEND_S_MIN
from ternmq_consumer.rebalance.allocation.strategy import AllocationStrategy
from ternmq_consumer.rebalance.allocation.strategy_names import strategy_of
from ternmq_model.arguments import check_kinds, fault_of_time_ms
from ternmq_model.errors import ConfigError

RETRIES_MAX: Final = 65_536
"""Greatest number of retries. Brokers have this limit for a group's settings."""


class ConsumeFrom(enum.Enum):
    """Position at which a group begins in a queue that it never consumed.

    Attributes:
        LAST_OFFSET: End of the queue when its first member gets it. In a young queue, whose first
            message is still in the broker's memory, the first message.
        FIRST_OFFSET: Oldest message of the broker.
        TIMESTAMP: First message that was stored at `consume_at_ms` or later.

    Source: RocketMQ `ConsumeFromWhere`.
    """

    LAST_OFFSET = enum.auto()
    FIRST_OFFSET = enum.auto()
    TIMESTAMP = enum.auto()


class MessageModel(enum.Enum):
    """Distribution of messages among the members of a group.

    Attributes:
        CLUSTERING: Each message goes to one member.
        BROADCASTING: Each message goes to every member. A failed message is logged and counted,
            without a retry.

    Source: RocketMQ `MessageModel`.
    """

    CLUSTERING = enum.auto()
    BROADCASTING = enum.auto()


class OffsetsKept(enum.Enum):
    """Storage of the offsets of a broadcasting member.

    Attributes:
        LOCALLY: File on the member's machine.
        AT_BROKERS: Brokers, under the member's own name: for machines without lasting files.
    """

    LOCALLY = enum.auto()
    AT_BROKERS = enum.auto()


@dataclass(frozen=True, kw_only=True, slots=True)
class PushConsumerConfig:
    """Settings of a push consumer. Durations in seconds, sizes in bytes.

    Source: RocketMQ `DefaultMQPushConsumer`. Texts of other defaults give the reason.
    """

    consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET
    """Position at which a new group begins."""

    consume_at_ms: int | None = None
    """Start time for `ConsumeFrom.TIMESTAMP`, Unix milliseconds. None = 30 minutes before the
    consumer is entered."""

    workers: int = 20
    """Listener calls that run at the same time, over all queues."""

    batch_messages: int = 1024
    """Most messages of one call of a batch listener. (RocketMQ: 1. A call does not wait for more
    messages.)"""

    message_model: MessageModel = MessageModel.CLUSTERING
    """Distribution of messages: shared among the members, or all messages to each member."""

    order_per_queue: bool = False
    """Orderly consumption: messages of a queue are handled one call after the other, by offset,
    by the one member that holds the queue's lock. A failed message stops its queue for `suspend_s`
    and is retried first. All members must use the same value."""

    retries_max: int = -1
    """Retries of a failed message before it becomes a dead letter. -1 = the number in the group's
    settings at the broker (16), or unlimited with `order_per_queue`."""

    consume_timeout_s: float = 900.0
    """Timeout of a listener call, s. Its message is then sent back for redelivery after 10 s, and
    a later result of the call is ignored. Without effect on orderly consumers."""

    suspend_s: float = 1.0
    """Pause of an orderly queue after a failure, 0.01 to 30 s."""

    pull_threshold_messages: int = 1000
    """Most messages of one queue that are read ahead and not finished. (Four times as many bring a
    batch listener up to a tenth more messages a second.)"""

    pull_threshold_bytes: int = 100 << 20
    """Most bytes of one queue that are read ahead and not finished; one record may exceed the
    limit. With large messages, this bounds the memory for a queue."""

    span_max: int = 2000
    """Largest distance between the read offset of a queue and its lowest unfinished message, in
    offsets; reading pauses beyond. Best at least twice `pull_threshold_messages`."""

    retry_s: float = 5.0
    """Pause before the listener gets a failed message again that its broker could not store, s.
    The broker's schedule decides the redelivery of messages that it stored."""

    rebalance_s: float = 20.0
    """Interval between rebalances without a cause, s."""

    commit_s: float = 5.0
    """Interval between commits of offsets, s."""

    take_over_wait_s: float = 0.5
    """Wait before a member reads the committed offset of a new queue, s; not for a single member.
    The previous owner commits meanwhile; a shorter wait means more duplicates."""

    drop_wait_s: float = 1.0
    """Longest wait for running listener calls before a queue goes to another member, s."""

    close_wait_s: float = 10.0
    """Longest wait for running listener calls when the consumer is closed, s. Messages of longer
    calls, and those behind them in their queues, are redelivered."""

    allocate: AllocationStrategy | str = "AVG"
    """Allocation of queues to members: `AVG`, `AVG_BY_CIRCLE`, `CONSISTENT_HASH`,
    `MACHINE_ROOM_NEARBY-<one of these>`, or a strategy object or function. All members of a group
    must use the same."""

    offsets_kept: OffsetsKept = OffsetsKept.LOCALLY
    """Storage of the offsets of a broadcasting member. Offsets of a clustering group are stored at
    the brokers."""

    offsets_folder: Path | None = None
    """Folder for the offsets of a broadcasting member; None = `~/.ternmq/offsets`."""

    def __post_init__(self) -> None:
        check_kinds("consumer", self)
        strategy_of(self.allocate)
        _check_start(self.consume_from, self.consume_at_ms)
        for name in (
            "workers",
            "batch_messages",
            "pull_threshold_messages",
            "pull_threshold_bytes",
            "span_max",
        ):
            _check_count(name, getattr(self, name), 1)
        _check_count("retries_max", self.retries_max, -1, RETRIES_MAX)
        # A name in place of a member of the enumeration would be equal to none of them.
        _check_kind("message_model", self.message_model, MessageModel)
        _check_kind("offsets_kept", self.offsets_kept, OffsetsKept)
        _check_folder(self.offsets_folder)
        if not SUSPEND_S_MIN <= self.suspend_s <= SUSPEND_S_MAX:
            rule = f"must be {SUSPEND_S_MIN} to {SUSPEND_S_MAX}"
            raise ConfigError("consumer.suspend_s", self.suspend_s, rule)
        for name in ("retry_s", "rebalance_s", "commit_s", "consume_timeout_s"):
            seconds: float = getattr(self, name)
            if not seconds > 0:
                raise ConfigError(f"consumer.{name}", seconds, "must be above 0")
        for name in ("take_over_wait_s", "drop_wait_s", "close_wait_s"):
            wait_s: float = getattr(self, name)
            if not wait_s >= 0:
                raise ConfigError(f"consumer.{name}", wait_s, "must be 0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class PullConsumerConfig:
    """Settings of a pull consumer. Durations in seconds, sizes in bytes.

    Source: RocketMQ `DefaultLitePullConsumer`.
    """

    consume_from: ConsumeFrom = ConsumeFrom.FIRST_OFFSET
    """Start position in a queue without a seek and without a committed offset of the group."""

    consume_at_ms: int | None = None
    """Start time for `ConsumeFrom.TIMESTAMP`, Unix milliseconds. None = 30 minutes before the
    consumer is entered."""

    pull_threshold_messages: int = 16_384
    """Most messages of one queue that are read ahead of `poll`."""

    pull_threshold_bytes: int = 8 << 20
    """Most bytes of one queue that are read ahead of `poll`; one record may exceed the limit."""

    check_crc: bool = True
    """Verification of the checksum of every body."""

    auto_commit: bool = False
    """Automatic commits of the messages that earlier polls returned: at a poll, when a queue goes
    to another member, and on closing. (RocketMQ: on.)"""

    auto_commit_s: float = 5.0
    """Shortest interval between commits by polls with `auto_commit`, s."""

    rebalance_s: float = 20.0
    """Interval between rebalances of a subscribed consumer without a cause, s."""

    take_over_wait_s: float = 0.5
    """Wait before a subscribed member reads the committed offset of a new queue, s; not for a
    single member. The previous owner commits meanwhile."""

    allocate: AllocationStrategy | str = "AVG"
    """Allocation of queues to subscribed members; values as in `PushConsumerConfig.allocate`. All
    members of a group must use the same."""

    def __post_init__(self) -> None:
        check_kinds("consumer", self)
        strategy_of(self.allocate)
        _check_start(self.consume_from, self.consume_at_ms)
        for name in ("pull_threshold_messages", "pull_threshold_bytes"):
            _check_count(name, getattr(self, name), 1)
        for name in ("auto_commit_s", "rebalance_s"):
            seconds: float = getattr(self, name)
            if not seconds > 0:
                raise ConfigError(f"consumer.{name}", seconds, "must be above 0")
        if not self.take_over_wait_s >= 0:
            raise ConfigError(
                "consumer.take_over_wait_s", self.take_over_wait_s, "must be 0 or more"
            )


def _check_start(consume_from: object, consume_at_ms: int | None) -> None:
    _check_kind("consume_from", consume_from, ConsumeFrom)
    if consume_at_ms is None:
        return
    if consume_from is not ConsumeFrom.TIMESTAMP:
        rule = f"has a meaning with {ConsumeFrom.TIMESTAMP} alone"
        raise ConfigError("consumer.consume_at_ms", consume_at_ms, rule)
    if fault := fault_of_time_ms(consume_at_ms):
        raise ConfigError("consumer.consume_at_ms", consume_at_ms, fault)
    _check_count("consume_at_ms", int(consume_at_ms), 0)


def _check_folder(value: object) -> None:
    if value is not None and not isinstance(value, Path):
        raise ConfigError("consumer.offsets_folder", value, "must be a pathlib.Path, or None")


def _check_kind(name: str, value: object, kind: type[enum.Enum]) -> None:
    if not isinstance(value, kind):
        rule = f"must be one of {', '.join(map(str, kind))}"
        raise ConfigError(f"consumer.{name}", value, rule)


def _check_count(name: str, value: int, least: int, most: int | None = None) -> None:
    rule = f"must be {least} or more" if most is None else f"must be {least} to {most}"
    if value < least or (most is not None and value > most):
        raise ConfigError(f"consumer.{name}", value, rule)
