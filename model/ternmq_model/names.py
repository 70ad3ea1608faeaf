"""Rules for names of topics and groups, and the names that have a meaning of their own.

Source: RocketMQ `TopicValidator`, `Validators`, `MixAll`.
"""

import re
from collections.abc import Callable
from typing import Final

from ternmq_model.arguments import is_kind
from ternmq_model.errors import IllegalName

TOPIC_BYTES_MAX: Final = 127
"""Longest topic that a V1 record can hold: its length is a signed byte."""

GROUP_BYTES_MAX: Final = 120
LONG_GROUP_BYTES_MAX: Final = 255
"""Longest group in a store of RocketMQ up to 5.3. It is kept; no client can use it here."""

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"

LONG_TOPIC_BYTES_MAX: Final = 255
"""Longest topic of a group's own: RocketMQ 5 allows groups so long and keeps messages of such a
topic in V2 records. They are read; nothing is sent to them."""

AUTO_CREATE_TOPIC: Final = "TBW102"
"""The template whose settings a topic created by a send copies."""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
WHEEL_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
"""Behind a cluster's name: where replies to requests are sent."""

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
"""The group whose offsets tell up to where dead letters are handled."""

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
"""A topic's name is a folder's: with a dot first it could be hidden, or lead out of the store."""

_ALLOWED: Final = "may have only letters (a-z, A-Z), digits and % | _ -"


def check_topic(topic: str) -> str:
    """Return `topic` when it is legal; one that is long may only be a group's own.

    Raises:
        IllegalName: It is empty, too long, has other characters than `% | a-z A-Z 0-9 . _ -`, or
            begins with a dot.
    """
    is_of_group = is_kind(topic, str) and topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    return _check("topic", topic, LONG_TOPIC_BYTES_MAX if is_of_group else TOPIC_BYTES_MAX)


def check_group(group: str) -> str:
    """Return `group` when it is legal.

    Raises:
        IllegalName: It is empty, too long, has other characters than `% | a-z A-Z 0-9 . _ -`, or
            begins with a dot.
    """
    return _check("group", group, GROUP_BYTES_MAX)


def check_stored_group(group: str) -> str:
    """Return `group` when a store may have it; it may be longer than one that is used.

    Raises:
        IllegalName: It is empty, too long, has other characters than `% | a-z A-Z 0-9 . _ -`, or
            begins with a dot.
    """
    return _check("group", group, LONG_GROUP_BYTES_MAX)


def is_legal(check: Callable[[str], str], name: str) -> bool:
    """Tell whether one of the checks above lets `name` pass."""
    try:
        check(name)
    except IllegalName:
        return False
    return True


def _check(kind: str, name: str, bytes_max: int) -> str:
    if name.__class__ is not str and not is_kind(
        name, str
    ):  # whoever does not check types learns it here
        raise IllegalName(kind, name, "must be a string")
    if not name:
        raise IllegalName(kind, name, "must not be empty")
    if len(name) > bytes_max:
        raise IllegalName(
            kind, name[:bytes_max] + "…", f"is {len(name)} characters long, at most {bytes_max} fit"
        )
    if not _LEGAL.fullmatch(name):
        raise IllegalName(kind, name, f"{_ALLOWED}; where brokers take dots, those too, not first")
    return name


def check_new_name(kind: str, name: str, *, allows_dots: bool) -> None:
    """Let a legal name come into being at a broker.

    RocketMQ allows no dots. Names with dots that are there go on, whatever brokers are told later:
    only whoever makes a topic or a group asks this.

    Args:
        kind: `topic` or `group`.
        name: A legal one.
        allows_dots: The broker's setting.

    Raises:
        IllegalName: It has a dot.
    """
    if "." in name and not allows_dots:
        rule = f"{_ALLOWED}; this broker takes no dots (broker.dots_in_names_allowed)"
        raise IllegalName(kind, name, rule)


def is_system_topic(topic: str) -> bool:
    """Tell whether the broker made `topic` for itself."""
    return topic in _SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    """Tell whether `group` is the broker's own, or of tools that belong to it."""
    return group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_GROUP_PREFIX)


def topic_order(topic: str) -> tuple[int, str]:
    """Return by what lists of topics are sorted: users' own, then groups', then the system's."""
    if is_system_topic(topic):
        return 2, topic
    return int(topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))), topic


def group_order(group: str) -> tuple[bool, str]:
    """Return by what lists of groups are sorted: the system's come last."""
    return is_system_group(group), group


def is_broker_group(group: str) -> bool:
    """Tell whether a broker keeps its own progress under `group`: no client may move that."""
    return group == "SCHEDULE_CONSUMER" or group.startswith(_SYSTEM_GROUP_PREFIX)


def is_send_forbidden(topic: str) -> bool:
    """Tell whether clients may not send to `topic`: the broker alone writes to it, or nobody."""
    return topic in _SEND_FORBIDDEN or topic.startswith(_SYSTEM_PREFIX)


def is_read_forbidden(topic: str) -> bool:
    """Tell whether clients may not read `topic`: what it holds is not decided yet."""
    return topic in (HALF_TOPIC, OP_TOPIC)
