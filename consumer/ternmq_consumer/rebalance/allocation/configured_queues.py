"""Shares by configuration. Pure."""

from collections.abc import Iterable, Sequence

from ternmq_model.errors import ConfigError
from ternmq_model.queue import MessageQueue


class AllocateByConfiguration:
    """Strategy that gives a member its configured queues, independent of other members.

    No other member takes the queues of a member that is away. The operator must configure every
    queue for exactly one member.

    Args:
        queues: Queues of this member, of any topics. Missing queues are ignored.

    Raises:
        ConfigError: A value of `queues` is no queue.

    Source:
        RocketMQ `AllocateMessageQueueByConfig`.
    """

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        given: list[object] = list(queues)
        for each in given:
            if not isinstance(each, MessageQueue):  # for callers without a type checker
                raise ConfigError("consumer.allocate.queues", each, "must be a MessageQueue")
        self._queues = frozenset(each for each in given if isinstance(each, MessageQueue))

    def __call__(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> Sequence[MessageQueue]:
        """Return the configured ones of `queues`. See `AllocationStrategy`."""
        return [queue for queue in queues if queue in self._queues]
