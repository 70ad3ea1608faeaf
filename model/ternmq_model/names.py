"""Rules for names of topics and groups, and reserved names.

Source: RocketMQ `TopicValidator`, `Validators`, `MixAll`.
"""

import re
from collections.abc import Callable
from typing import Final

from ternmq_model.arguments import is_kind
from ternmq_model.errors import IllegalName

TOPIC_BYTES_MAX: Final = 127
"""Most bytes of a topic in a V1 record, whose length of the topic is a signed byte."""

GROUP_BYTES_MAX: Final = 120
LONG_GROUP_BYTES_MAX: Final = 255
"""Most bytes of a group in a store of RocketMQ up to 5.3. Clients of TernMQ cannot use it."""

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"

LONG_TOPIC_BYTES_MAX: Final = 255
"""Most bytes of a retry or dead letter topic: RocketMQ 5 allows such long groups and stores the
messages in V2 records. TernMQ reads them and sends none."""

AUTO_CREATE_TOPIC: Final = "TBW102"
"""Topic whose settings are the template of topics that a send creates."""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
WHEEL_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
"""Suffix of a cluster's topic of replies to requests."""

OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"

_SEND_FORBIDDEN: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        CHECK_MAX_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        AUTO_CREATE_TOPIC,
    }
)
DEAD_LETTER_TOOLS: Final = "TOOLS_DEAD_LETTERS"
"""Group whose offsets mark the handled dead letters."""

_SYSTEM_GROUPS: Final = frozenset(
    {
        "TOOLS_CONSUMER",
        DEAD_LETTER_TOOLS,
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
    }
)
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
_SYSTEM_PREFIX: Final = "rmq_sys_"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Default topic of clients' traces."""

_SYSTEM_TOPICS: Final = _SEND_FORBIDDEN | {
    TRACE_TOPIC,
    "BenchmarkTest",
    "CHECKPOINT_TOPIC",
}
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-][%|a-zA-Z0-9._-]*", re.ASCII)
"""Legal names. A topic is a folder: a leading dot could hide it or lead out of the store."""

_ALLOWED: Final = "may have only letters (a-z, A-Z), digits and % | _ -"


def check_topic(topic: str) -> str:
    """Return `topic` if it is legal. Only retry and dead letter topics may exceed 127 bytes.

    Raises:
        IllegalName: The name is empty, too long, begins with a dot, or has other characters than
            `% | a-z A-Z 0-9 . _ -`.
    """
    is_of_group = is_kind(topic, str) and topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    return _check("topic", topic, LONG_TOPIC_BYTES_MAX if is_of_group else TOPIC_BYTES_MAX)


def check_group(group: str) -> str:
    """Return `group` if it is legal.

    Raises:
        IllegalName: The name is empty, too long, begins with a dot, or has other characters than
            `% | a-z A-Z 0-9 . _ -`.
    """
    return _check("group", group, GROUP_BYTES_MAX)


def check_stored_group(group: str) -> str:
    """Return `group` if a store may have it. It may be longer than a group in use.

    Raises:
        IllegalName: The name is empty, too long, begins with a dot, or has other characters than
            `% | a-z A-Z 0-9 . _ -`.
    """
    return _check("group", group, LONG_GROUP_BYTES_MAX)


def is_legal(check: Callable[[str], str], name: str) -> bool:
    """Return whether `check` accepts `name`."""
    try:
        check(name)
    except IllegalName:
        return False
    return True


def _check(kind: str, name: str, bytes_max: int) -> str:
    if name.__class__ is not str and not is_kind(name, str):  # for callers without a type checker
        raise IllegalName(kind, name, "must be a string")
    if not name:
        raise IllegalName(kind, name, "must not be empty")
    if len(name) > bytes_max:
        raise IllegalName(
            kind, name[:bytes_max] + "…", f"is {len(name)} characters long, at most {bytes_max} fit"
        )
    if not _LEGAL.fullmatch(name):
        raise IllegalName(
            kind, name, f"{_ALLOWED}; some brokers also allow dots, except at the start"
        )
    return name


def check_new_name(kind: str, name: str, *, allows_dots: bool) -> None:
    """Check a legal name of a topic or group that a broker creates.

    RocketMQ allows no dots. Existing names with dots stay legal under any setting, since only the
    creation of a topic or group makes this check.

    Args:
        kind: `topic` or `group`.
        name: Legal name.
        allows_dots: Setting of the broker.

    Raises:
        IllegalName: The name has a dot.
    """
    if "." in name and not allows_dots:
        rule = f"{_ALLOWED}; this broker allows no dots (broker.dots_in_names_allowed)"
        raise IllegalName(kind, name, rule)


def is_system_topic(topic: str) -> bool:
    """Return whether `topic` is a system topic."""
    return topic in _SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    """Return whether `group` belongs to the broker or its tools."""
    return group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_GROUP_PREFIX)


def topic_order(topic: str) -> tuple[int, str]:
    """Return the sort key of topics: those of users, then of groups, then of the system."""
    if is_system_topic(topic):
        return 2, topic
    return int(topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))), topic


def group_order(group: str) -> tuple[bool, str]:
    """Return the sort key of groups: those of the system come last."""
    return is_system_group(group), group


def is_broker_group(group: str) -> bool:
    """Return whether `group` has the broker's own progress, which no client may change."""
    return group == "SCHEDULE_CONSUMER" or group.startswith(_SYSTEM_GROUP_PREFIX)


def is_send_forbidden(topic: str) -> bool:
    """Return whether clients may not send to `topic`: only the broker writes to it, or nothing."""
    return topic in _SEND_FORBIDDEN or topic.startswith(_SYSTEM_PREFIX)


def is_read_forbidden(topic: str) -> bool:
    """Return whether clients may not read `topic`: its messages are not committed yet."""
    return topic in (HALF_TOPIC, OP_TOPIC)
