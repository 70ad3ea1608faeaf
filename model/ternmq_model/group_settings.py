"""Settings of a consumer group on one broker.

Source: RocketMQ `SubscriptionGroupConfig`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of a consumer group on one broker, which decides whether they can be."""

    group: str
    """Name of the group."""

    consume_enabled: bool = True
    """True where the group may consume."""

    broadcast_enabled: bool = True
    """True where its members may broadcast."""

    consume_from_min_enabled: bool = False
    """A queue that the group never consumed begins with the first message that is kept."""

    retry_queues: int = 1
    """Queues of its retry topic. 0 = messages that are sent back are dropped."""

    retries_max: int = 16
    """After so many a message that is sent back is a dead letter."""

    broker_id: int = 0
    """Id of the broker name's member that serves the group: 0 = the master."""

    broker_id_when_slow: int = 1
    """Id of the member that serves it when it is far behind."""

    notify_members_changed: bool = True
    """Members are told at once when others come and go."""
