"""What a consumer group may do on one broker.

Source: RocketMQ `SubscriptionGroupConfig`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What a consumer group may do on one broker. Whether that can be, the broker decides."""

    group: str
    """Name of the group."""

    consume_enabled: bool = True
    """Whether the group may consume."""

    broadcast_enabled: bool = True
    """Whether its members may broadcast."""

    consume_from_min_enabled: bool = False
    """Where the group never consumed a queue it begins with the first message that is kept."""

    retry_queues: int = 1
    """Of its retry topic. 0 = messages that are sent back are dropped."""

    retries_max: int = 16
    """After so many a message that is sent back is a dead letter."""

    broker_id: int = 0
    """Which member of the broker name serves the group: 0 = the master."""

    broker_id_when_slow: int = 1
    """Which one when it is far behind."""

    notify_members_changed: bool = True
    """Members are told at once when others come and go."""
