"""Ways to choose a message's queue, to be given to `send(selector=…)`. Pure but for the random one.

A selector is any callable that takes the topic's queues, which come sorted, and the message. Its
message stays on the queue that it chose and in its order, unless the selector says
`keeps_order = False`: then it may be tried again on another.

Source: RocketMQ `SelectMessageQueueByHash`, `SelectMessageQueueByRandom`,
`SelectMessageQueueByMachineRoom`.
"""

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import ClassVar

from ternmq_model.arguments import check_function
from ternmq_model.errors import UsageError
from ternmq_model.message import Message
from ternmq_model.properties import java_hash
from ternmq_model.queue import MessageQueue

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses the queue of a message among those of its topic, which come sorted."""


def keeps_order(selector: QueueSelector) -> bool:
    """Return whether messages stay where `selector` put them."""
    return getattr(selector, "keeps_order", True) is not False


def is_ordered(
    message: Message, queue: MessageQueue | None, selector: QueueSelector | None
) -> bool:
    """Return whether `message` has a place in an order: one queue, and no message overtakes it.

    Args:
        message: What is sent.
        queue: The sender's choice of a queue; None when it made none.
        selector: The sender's function that chooses a queue; None when it has none.
    """
    if queue is None and selector is None:
        return bool(message.sharding_key)
    return selector is None or keeps_order(selector)


class RoundRobin:
    """In turn: what a producer does without a selector, with a round of this object's own."""

    keeps_order: ClassVar[bool] = False

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Return the next queue."""
        self._next += 1
        return queues[(self._next - 1) % len(queues)]


class ByRandom:
    """Any queue.

    Args:
        random: What draws, such as `random.Random()`.
    """

    keeps_order: ClassVar[bool] = False

    def __init__(self, random: Random) -> None:
        self._random = random

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Return one of them."""
        return self._random.choice(queues)


class ByHash:
    """The queue of a value's hash, the same for the same value as long as the queues are the same.

    Args:
        value: Hashed as Java does: a text, or a whole number of 32 bits, which is its own hash.
    """

    def __init__(self, value: str | int) -> None:
        self._hash = value if isinstance(value, int) else java_hash(value)

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Return its queue."""
        return queues[abs(self._hash) % len(queues)]


class ByKey:
    """The queue of the hash of something that the message itself says.

    Args:
        key_of: Returns it. None = the sharding key, else the first of the keys.
    """

    def __init__(self, key_of: Callable[[Message], str] | None = None) -> None:
        self._key_of = key_of or _first_key

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Return its queue.

        Raises:
            UsageError: The message has no key.
        """
        key = self._key_of(message)
        if not key:
            raise UsageError(f"a message for {message.topic!r} has no key to choose a queue by")
        return queues[abs(java_hash(key)) % len(queues)]


class ByMachineRoom:
    """In turn among the queues of brokers in certain rooms: those whose names begin so.

    Args:
        rooms: Beginnings of broker names, such as `("shanghai-",)`.
        elsewhere: Take any queue when no broker of these rooms has one; else that is an error.
    """

    keeps_order: ClassVar[bool] = False

    def __init__(self, rooms: Collection[str], *, elsewhere: bool = True) -> None:
        if isinstance(rooms, str) or not rooms or not all(rooms):
            raise UsageError("rooms are beginnings of broker names: a collection of texts")
        self._rooms = tuple(rooms)
        self._elsewhere = elsewhere
        self._round = RoundRobin()

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Return the next queue.

        Raises:
            UsageError: No broker of the rooms has one, and none elsewhere is wanted.
        """
        near = [queue for queue in queues if queue.broker_name.startswith(self._rooms)]
        if not near and not self._elsewhere:
            raise UsageError(f"topic {message.topic!r} has no queue in {', '.join(self._rooms)}")
        return self._round(near or queues, message)


def _first_key(message: Message) -> str:
    return message.sharding_key or next(iter(message.keys), "")


def chosen_queue(
    message: Message,
    queues: Sequence[MessageQueue],
    queue: MessageQueue | None,
    selector: QueueSelector | None,
) -> MessageQueue:
    """Return the queue that the caller chose: `queue`, or by `selector`, which has all `queues`.

    Raises:
        UsageError: Both are given, or what was chosen is no queue of the message's topic.
    """
    if selector is not None:
        if queue is not None:
            raise UsageError("a queue and a selector exclude each other")
        try:
            queue = selector(queues, message)
        except TypeError:
            check_function("selector", selector, 2)
            raise
    if not isinstance(queue, MessageQueue):  # whoever does not check types learns it here
        raise UsageError(f"{queue!r} was chosen for {message.topic!r}, which is no queue")
    if queue.topic != message.topic or not 0 <= queue.queue_id < 1 << 31:
        raise UsageError(f"a message for {message.topic!r} cannot go to {queue}")
    return queue
