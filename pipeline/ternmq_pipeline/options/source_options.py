"""Options of the source. Pure, except for the default NameServer from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ternmq_client.config import default_nameservers, nameserver_texts
from ternmq_client.retry_timeout import RETRY_TIMEOUT, RETRY_TIMEOUT_S
from ternmq_model.address import parse_address
from ternmq_model.errors import ConfigError, IllegalName, UsageError
from ternmq_model.expression_text import trimmed
from ternmq_model.names import check_group, is_system_group
from ternmq_model.route import check_broker_name
from ternmq_model.subscription import (
    ALL_TAGS,
    SQL92,
    TAG,
    Expression,
    parse_subscription,
)
from ternmq_pipeline.offsets import topics_of
from ternmq_pipeline.options.option_map import RENAMED, OptionMap
from ternmq_pipeline.options.positions import (
    ENDING,
    STARTING,
    AtOffsets,
    AtTime,
    AtTimes,
    Position,
    QueueEnd,
    TimeStrategy,
    ending_position,
    starting_position,
)
from ternmq_pipeline.options.topics import (
    TOPIC_OPTIONS,
    Assign,
    SubscribePattern,
    TopicChoice,
    topic_choice,
)
from ternmq_pipeline.strict_json import shown

STORE_BROKER: Final = "store"


class View(Enum):
    """Set of columns of a read."""

    TERNMQ = "ternmq"
    KAFKA = "kafka"
    """Columns of Spark's Kafka source."""


class CommitMode(Enum):
    """Committer of the offsets of `commitGroup`."""

    NONE = "none"
    """The listener of `ternmq_pipeline` commits, or nothing does."""

    SPARK = "spark"
    """The stream commits a batch when Spark reports it as done: one batch late."""


class PushdownMode(Enum):
    """Pushdown of a query's conditions to brokers by a batch read.

    Spark 4.3 keeps one plan for each loaded frame, with the conditions of the last planned query,
    and reads other queries of the frame by that plan. A source cannot tell one query from another.
    So pushdown is for frames that serve one query.
    """

    AUTO = "auto"
    """Spark's setting `spark.sql.python.filterPushdown.enabled` decides."""

    ALWAYS = "true"
    NEVER = "false"


class ScanMode(Enum):
    """Form of the messages that brokers send."""

    AUTO = "auto"
    """Arrow batches if the broker supports Scan, else records."""

    NEVER = "never"
    """Records."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerLimits:
    """Limits of one batch of a stream. None = no limit."""

    offsets_max: int | None = None
    """Most messages of a batch."""

    bytes_max: int | None = None
    """Most bytes of a batch, as records of the log."""

    offsets_min: int | None = None
    """Least messages of a batch, for at most `delay_max_ms`."""

    delay_max_ms: int = 15 * 60_000
    """Longest wait of a batch for `offsets_min` messages, ms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions:
    """Checked options of the source. Made by `read_options`."""

    nameservers: tuple[str, ...]
    topics: TopicChoice | None
    """Topics to read. None = all user topics, for a store's directory only."""

    store: str | None = None
    """Directory of a store that is read without a broker."""

    broker_name: str = STORE_BROKER
    """Broker's name in the rows of a store's directory. The store does not hold it."""

    raw: bool = False
    """True = rows are the records of the store's commit log, without queues."""

    include_system_topics: bool = False
    view: View = View.TERNMQ
    include_headers: bool = False
    starting: Position = QueueEnd.EARLIEST
    ending: Position = QueueEnd.LATEST
    starting_strategy: TimeStrategy = TimeStrategy.ERROR
    fail_on_data_loss: bool = True
    limits: TriggerLimits = TriggerLimits()
    """Limits of one batch of a stream."""

    partitions_min: int | None = None
    partition_records_max: int | None = None
    filter: Expression | None = None
    commit_group: str = ""
    """Consumer group whose offsets are committed; "" = none."""

    commit_mode: CommitMode = CommitMode.NONE
    pushdown: PushdownMode = PushdownMode.NEVER
    arrow: bool = True
    """True = Spark gets Arrow batches; False = tuples, for comparisons."""

    scan: ScanMode = ScanMode.AUTO
    batch_rows_max: int = 10_000
    """Most rows of one Arrow batch."""

    retry_timeout_s: float = RETRY_TIMEOUT_S
    """Time without progress after which plans and tasks fail, s."""

    request_timeout_s: float = 3.0

    @property
    def nameserver(self) -> str:
        """Addresses of the NameServers, separated by semicolons."""
        return ";".join(self.nameservers)


_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitGroup",
    "commitMode",
)
_CLUSTER_ONLY: Final = (
    "nameserver",
    "maxRecordsPerPartition",
    "scan",
    RETRY_TIMEOUT,
    "requestTimeout",
)
_STORE_ONLY: Final = ("brokerName",)
_NOT_RAW: Final = (
    *TOPIC_OPTIONS,
    *STARTING,
    *ENDING,
    "minPartitions",
    "view",
    "includeHeaders",
    "includeSystemTopics",
    "filter",
    "filterType",
    "startingOffsetsByTimestampStrategy",
)
READ_OPTIONS: Final = tuple(
    dict.fromkeys(
        (
            *TOPIC_OPTIONS,
            *STARTING,
            *ENDING,
            *_STREAM_ONLY,
            *_CLUSTER_ONLY,
            *_NOT_RAW,
            "store",
            "raw",
            "failOnDataLoss",
            "minPartitions",
            "pushdown",
            "arrow",
            "batchRows",
            *_STORE_ONLY,
        )
    )
)
"""Names of all options of the source."""

_HINTS: Final[Mapping[str, str]] = {
    **RENAMED,
    "path": "a read has no path: name topics by subscribe, or a broker's directory by store",
    "paths": "a read has no path: name topics by subscribe, or a broker's directory by store",
    "topic": "the source reads the topics of subscribe; topic is an option of the sink",
    "topics": "the source reads the topics of subscribe",
    "kafka.bootstrap.servers": "it is called nameserver here: HOST:PORT of a TernMQ NameServer",
    "namesrvaddr": "it is called nameserver here",
    "kafka.group.id": "it is called commitGroup here",
    "groupidprefix": "readers belong to no group; commitGroup commits their progress for a group",
    "subexpression": "it is called filter here",
}


def read_options(options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
    """Return the checked options of a source.

    Args:
        options: Options from Spark, names in any case.
        streaming: True = options of a stream, False = of a batch, None = of either.

    Raises:
        UsageError: An option is unknown, malformed, out of its range, contradicts another or does
            not belong to this kind of read. The error names it.
    """
    option_map = OptionMap(options, known=READ_OPTIONS, hints=_HINTS)
    store = option_map.text("store")
    raw = option_map.boolean("raw", False)
    _refuse_what_does_not_fit(option_map, store, raw=raw, streaming=streaming)
    include_system = option_map.boolean("includeSystemTopics", False)
    topics = topic_choice(option_map, needed=store is None, include_system=include_system)
    starting = starting_position(option_map, streaming=streaming)
    ending = ending_position(option_map, streaming=streaming)
    _refuse_other_topics(topics, starting, "starting")
    _refuse_other_topics(topics, ending, "ending")
    if (
        isinstance(starting, AtTime)
        and isinstance(ending, AtTime)
        and starting.at_ms > ending.at_ms
    ):
        rule = f"must not be after endingTimestamp={ending.at_ms}"
        raise ConfigError("startingTimestamp", starting.at_ms, rule)
    view = option_map.choice("view", View.TERNMQ)
    include_headers = option_map.boolean("includeHeaders", False)
    if include_headers and view is not View.KAFKA:
        raise ConfigError("includeHeaders", "true", "is for view=kafka; here are properties")
    group, mode = _commit(option_map)
    return ReadOptions(
        nameservers=nameservers_of(option_map) if store is None else (),
        topics=topics,
        store=store,
        broker_name=_broker_name(option_map),
        raw=raw,
        include_system_topics=include_system,
        view=view,
        include_headers=include_headers,
        starting=starting,
        ending=ending,
        starting_strategy=option_map.choice(
            "startingOffsetsByTimestampStrategy", TimeStrategy.ERROR
        ),
        fail_on_data_loss=option_map.boolean("failOnDataLoss", True),
        limits=_limits(option_map),
        partitions_min=option_map.integer("minPartitions", None, minimum=1, maximum=100_000),
        partition_records_max=option_map.integer("maxRecordsPerPartition", None, minimum=1),
        filter=_filter(option_map),
        commit_group=group,
        commit_mode=mode,
        pushdown=option_map.choice("pushdown", PushdownMode.NEVER),
        arrow=option_map.boolean("arrow", True),
        scan=option_map.choice("scan", ScanMode.AUTO),
        batch_rows_max=option_map.count("batchRows", 10_000, minimum=1, maximum=10_000),
        retry_timeout_s=option_map.retry_timeout_s(),
        request_timeout_s=option_map.seconds("requestTimeout", 3.0, minimum=0.1, maximum=3_600),
    )


def nameservers_of(option_map: OptionMap) -> tuple[str, ...]:
    """Return the NameServers of the option `nameserver`, else those of the environment.

    Raises:
        ConfigError: An address is malformed.
    """
    text = option_map.text("nameserver")
    if text is None:
        return default_nameservers()
    texts = nameserver_texts(text)
    if not texts:
        raise ConfigError("nameserver", text, "must name a NameServer")
    for one in texts:
        parse_address(one, setting="nameserver")
    return texts


def _refuse_what_does_not_fit(
    option_map: OptionMap, store: str | None, *, raw: bool, streaming: bool | None
) -> None:
    if streaming is False or store is not None:
        option_map.refuse(_STREAM_ONLY, "is for streams: this is a batch")
    if streaming and store is not None:
        raise ConfigError("store", shown(store), "a store's directory is read in batches alone")
    if store is not None:
        option_map.refuse(
            _CLUSTER_ONLY, "is for reading from brokers, not from a store's directory"
        )
        if "\0" in store:
            raise ConfigError("store", shown(store), "must be the path of a directory")
    else:
        option_map.refuse(_STORE_ONLY, "needs the option store: brokers know their names")
    if raw and store is None:
        raise ConfigError("raw", "true", "needs the option store: brokers serve queues alone")
    if raw:
        option_map.refuse(_NOT_RAW, "raw=true gives every record of the store, of all topics")


def _broker_name(option_map: OptionMap) -> str:
    name = option_map.text("brokerName")
    if name is None:
        return STORE_BROKER
    try:
        return check_broker_name(name)
    except IllegalName as error:
        raise ConfigError("brokerName", shown(name), f"the name {error.rule}") from None


def _refuse_other_topics(choice: TopicChoice | None, position: Position, kind: str) -> None:
    """Refuse positions of topics outside the read."""
    if isinstance(position, AtOffsets):
        queues, option = position.offsets.keys(), f"{kind}Offsets"
    elif isinstance(position, AtTimes):
        queues, option = position.times_ms.keys(), f"{kind}OffsetsByTimestamp"
    else:
        return
    for topic in topics_of(queues):
        if isinstance(choice, SubscribePattern):
            is_read = choice.matches(topic)
        else:
            is_read = choice is None or topic in choice.topics
        if not is_read:
            raise ConfigError(option, topic, "this topic is not read: see the option subscribe")
    if isinstance(choice, Assign):
        for queue in sorted(queues - set(choice.queues)):
            raise ConfigError(option, str(queue), "this queue is not read: see the option assign")


def _limits(option_map: OptionMap) -> TriggerLimits:
    limits = TriggerLimits(
        offsets_max=option_map.integer("maxOffsetsPerTrigger", None, minimum=1),
        bytes_max=option_map.integer("maxBytesPerTrigger", None, minimum=1),
        offsets_min=option_map.integer("minOffsetsPerTrigger", None, minimum=1),
        delay_max_ms=option_map.milliseconds(
            "maxTriggerDelay", 15 * 60_000, minimum=0, maximum=365 * 86_400_000
        ),
    )
    if limits.offsets_min is None:
        option_map.refuse(("maxTriggerDelay",), "needs the option minOffsetsPerTrigger")
    elif limits.offsets_max is not None and limits.offsets_min > limits.offsets_max:
        rule = f"must not be above maxOffsetsPerTrigger={limits.offsets_max}"
        raise ConfigError("minOffsetsPerTrigger", limits.offsets_min, rule)
    return limits


def _filter(option_map: OptionMap) -> Expression | None:
    text = option_map.text("filter", trimmed)
    kind = option_map.text("filterType")
    if text is None:
        option_map.refuse(("filterType",), "needs the option filter")
        return None
    types = {"tag": TAG, "sql92": SQL92}
    if (kind or "tag").lower() not in types:
        raise ConfigError("filterType", shown(kind), f"must be one of {', '.join(types)}")
    expression = Expression(text, types[(kind or "tag").lower()])
    try:
        parse_subscription("Topic", *expression)
    except UsageError as error:
        rule = str(error).removeprefix("subscription to 'Topic': ")
        raise ConfigError("filter", shown(text), rule) from None
    return None if expression == Expression(ALL_TAGS, TAG) else expression


def _commit(option_map: OptionMap) -> tuple[str, CommitMode]:
    group = option_map.text("commitGroup")
    if group is None:
        option_map.refuse(("commitMode",), "needs the option commitGroup")
        return "", CommitMode.NONE
    return checked_group("commitGroup", group), option_map.choice("commitMode", CommitMode.SPARK)


def checked_group(option: str, group: str) -> str:
    """Return `group` if an option may name it.

    Raises:
        ConfigError: The name is illegal, or the group belongs to the brokers.
    """
    try:
        check_group(group)
    except IllegalName as error:
        raise ConfigError(option, shown(group), f"the group {error.rule}") from None
    if is_system_group(group):
        raise ConfigError(option, group, "is a group of the brokers' own")
    return group
