"""Permissions: what an identity may do to what. Pure.

A topic of a group (retry, dead letters) belongs to that group: who may consume in the group may
read both and send a message back to retry topics. Dead letters are stored by brokers; only
administrators of the group send some. Other system topics, and those of replies, belong to the
cluster.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from ternmq_model.names import (
    DEAD_LETTER_PREFIX,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    TRACE_TOPIC,
    is_system_topic,
)


class Action(StrEnum):
    """Kind of use that a permission allows or denies."""

    PUBLISH = "publish"
    """Sends to a topic, and transactions of a producer group."""

    SUBSCRIBE = "subscribe"
    """Reads of a topic, and membership in a consumer group with its offsets and locks."""

    ADMIN = "admin"
    """Creation, change and deletion. Of the cluster: settings of services, users, permissions."""

    REPLICATE = "replicate"
    """Registration of a broker, and copies of its log, tables and epochs. Of the cluster only."""


class ResourceKind(StrEnum):
    """Kind of a resource."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Resource:
    """Object of a permission: the cluster, a topic or a group."""

    kind: ResourceKind
    name: str = ""
    """Name of the topic or group; empty for the cluster."""

    def __str__(self) -> str:
        """Return the resource as users write it, such as `topic:orders` or `cluster`."""
        return f"{self.kind}:{self.name}" if self.name else self.kind.value


NAME_CHARS_MAX: Final = 255
"""Longest name of which anything is remembered; legal ones are not longer."""

CLUSTER: Final = Resource(ResourceKind.CLUSTER)

Need = tuple[Action, Resource]
"""Permission that a call needs."""


def of_group(group: str, action: Action = Action.SUBSCRIBE) -> Need:
    """Return the permission for an action on a group."""
    return action, Resource(ResourceKind.GROUP, group)


def to_read(topic: str) -> Need:
    """Return the permission to read a topic."""
    return _of_topic(topic, Action.SUBSCRIBE)


def to_publish(topic: str, *, is_reply: bool = False) -> Need | None:
    """Return the permission to send to a topic; None = every known identity may.

    Traces and replies to requests are by-products of other calls, whose callers may send them.

    Args:
        topic: Topic of the message.
        is_reply: True for a message that says that it is a reply.
    """
    if topic == TRACE_TOPIC or (is_reply and topic.endswith(REPLY_SUFFIX)):
        return None
    return _of_topic(topic, Action.PUBLISH)


def to_administer(topic: str) -> Need:
    """Return the permission to create, change or delete a topic."""
    return _of_topic(topic, Action.ADMIN)


def to_know_topic(topic: str) -> tuple[Need | None, ...]:
    """Return the permissions each of which lets its owner know about a topic."""
    return (to_publish(topic), to_read(topic), to_administer(topic), (Action.ADMIN, CLUSTER))


def to_know_group(group: str) -> tuple[Need, ...]:
    """Return the permissions each of which lets its owner know about a consumer group."""
    return (of_group(group), of_group(group, Action.ADMIN), (Action.ADMIN, CLUSTER))


def _of_topic(topic: str, action: Action) -> Need:
    # Names of requests are checked later: a longer one would fill the memory.
    return _remembered(topic, action) if len(topic) <= NAME_CHARS_MAX else _need_of(topic, action)


def _need_of(topic: str, action: Action) -> Need:
    # A member may send a message back by itself. An operator's redrive sends a dead letter to the
    # topic from which it claims to come.
    for prefix, publish in (
        (RETRY_PREFIX, Action.SUBSCRIBE),
        (DEAD_LETTER_PREFIX, Action.ADMIN),
    ):
        if topic.startswith(prefix):
            needed = publish if action is Action.PUBLISH else action
            return of_group(topic.removeprefix(prefix), needed)
    if is_system_topic(topic) or topic.endswith(REPLY_SUFFIX):
        return Action.ADMIN, CLUSTER
    return action, Resource(ResourceKind.TOPIC, topic)


_remembered: Final = lru_cache(maxsize=4096)(_need_of)
