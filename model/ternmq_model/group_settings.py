"""Settings of a consumer group on one broker.

Source: RocketMQ `SubscriptionGroupConfig`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of a consumer group on one broker, which checks them."""

    group: str
    """Name of the group."""

    consume_enabled: bool = True
    """True = the group may consume."""

    broadcast_enabled: bool = True
    """True = members may broadcast."""

    consume_from_min_enabled: bool = False
    """True = the group begins with the oldest message of a queue that it never consumed."""

    retry_queues: int = 1
    """Number of queues of the retry topic. 0 = messages that are sent back are dropped."""

    retries_max: int = 16
    """Retries of a message before it becomes a dead letter."""

    broker_id: int = 0
    """Id of the member that serves the group; 0 = the master."""

    broker_id_when_slow: int = 1
    """Id of the member that serves a group with a long lag."""

    notify_members_changed: bool = True
    """True = members are notified at once of changed members."""
