"""Shares by configuration. Pure."""

from collections.abc import Iterable, Sequence

from ternmq_model.errors import ConfigError
from ternmq_model.queue import MessageQueue


class AllocateByConfiguration:
    """Gives the member that uses it the queues that it names, whoever else is there.

    Nobody takes the queues of a member that is away. That every queue is named for one member, and
    for one alone, is up to whoever configures them.

    Args:
        queues: This member's, of any topics. Those that do not exist are passed over.

    Raises:
        ConfigError: What is given are not queues.

    Source:
        RocketMQ `AllocateMessageQueueByConfig`.
    """

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        given: list[object] = list(queues)
        for each in given:
            if not isinstance(each, MessageQueue):  # whoever does not check types learns it here
                raise ConfigError("consumer.allocate.queues", each, "must be a MessageQueue")
        self._queues = frozenset(each for each in given if isinstance(each, MessageQueue))

    def __call__(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> Sequence[MessageQueue]:
        """Return those of `queues` that were configured. See `AllocationStrategy`."""
        return [queue for queue in queues if queue in self._queues]
