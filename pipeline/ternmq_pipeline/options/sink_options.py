"""Options of the sink. Pure, except for the default NameServer from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ternmq_client.retry_timeout import RETRY_TIMEOUT, RETRY_TIMEOUT_S
from ternmq_model.errors import ConfigError
from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_send_forbidden
from ternmq_pipeline.options.option_map import RENAMED, OptionMap
from ternmq_pipeline.options.source_options import checked_group, nameservers_of
from ternmq_pipeline.options.topics import checked_topic

PRODUCER_GROUP: Final = "ternmq-spark"
STAGING_TIMEOUT_S: Final = 3_600
STAGING_TIMEOUT_S_MAX: Final = 3 * 86_400


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteOptions:
    """Checked options of the sink. Made by `write_options`."""

    nameservers: tuple[str, ...]
    topic: str | None = None
    """Topic of every row, in place of the column `topic`. None = each row has a topic."""

    staging_timeout_s: int = STAGING_TIMEOUT_S
    """Time after which brokers roll staged rows back, s."""

    retry_timeout_s: float = RETRY_TIMEOUT_S
    """Time without an answer after which tasks and commits fail, s."""

    request_timeout_s: float = 3.0
    producer_group: str = PRODUCER_GROUP
    telemetry: bool = False
    """OpenTelemetry of tasks and commits, by the variables OTEL_* of their processes."""


WRITE_OPTIONS: Final = (
    "nameserver",
    "topic",
    "stagingTimeout",
    RETRY_TIMEOUT,
    "requestTimeout",
    "producerGroup",
    "telemetry",
)
"""Names of all options of the sink."""

_HINTS: Final[Mapping[str, str]] = {
    **RENAMED,
    "path": "a write has no path: name the topic by the option topic",
    "kafka.bootstrap.servers": "it is called nameserver here: HOST:PORT of a TernMQ NameServer",
    "namesrvaddr": "it is called nameserver here",
    "subscribe": "the sink writes to the topic of the option topic; subscribe is the source's",
}


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Return the checked options of a sink.

    Args:
        options: Options from Spark, names in any case.

    Raises:
        UsageError: An option is unknown, malformed or out of its range. The error names it.
    """
    option_map = OptionMap(options, known=WRITE_OPTIONS, hints=_HINTS)
    topic = option_map.text("topic")
    group = option_map.text("producerGroup")
    telemetry = option_map.text("telemetry")
    if telemetry not in (None, "otel"):
        raise ConfigError("telemetry", telemetry, "must be otel, or not given")
    return WriteOptions(
        nameservers=nameservers_of(option_map),
        topic=None if topic is None else written_topic("topic", topic),
        staging_timeout_s=_whole_seconds(
            option_map, "stagingTimeout", STAGING_TIMEOUT_S, maximum=STAGING_TIMEOUT_S_MAX
        ),
        retry_timeout_s=option_map.retry_timeout_s(),
        request_timeout_s=option_map.seconds("requestTimeout", 3.0, minimum=0.1, maximum=3_600),
        producer_group=PRODUCER_GROUP if group is None else checked_group("producerGroup", group),
        telemetry=telemetry is not None,
    )


def written_topic(option: str, topic: str) -> str:
    """Return `topic` if rows may be sent to it.

    Args:
        option: Name of the option or column with the topic, for the error.
        topic: Name of the topic.

    Raises:
        ConfigError: The name is illegal, or only brokers write to the topic.
    """
    checked_topic(option, topic, include_system=True)
    if is_send_forbidden(topic) or topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        raise ConfigError(option, topic, "only brokers may write to this topic")
    return topic


def _whole_seconds(option_map: OptionMap, name: str, default: int, *, maximum: int) -> int:
    seconds = option_map.seconds(name, default, minimum=1, maximum=maximum)
    if seconds != int(seconds):
        raise ConfigError(name, option_map.text(name), "must be whole seconds")
    return int(seconds)
