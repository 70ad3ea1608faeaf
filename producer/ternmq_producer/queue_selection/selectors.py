"""Selectors of a message's queue, for `send(selector=…)`. Pure but for the random one.

A selector is a callable that gets the topic's sorted queues and the message. The message stays on
the chosen queue and in its order. Where the selector has `keeps_order = False`, a retry may use
another queue.

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
"""Function that chooses the queue of a message among the sorted queues of its topic."""


def keeps_order(selector: QueueSelector) -> bool:
    """Return whether messages stay on the queue that `selector` chose."""
    return getattr(selector, "keeps_order", True) is not False


def is_ordered(
    message: Message, queue: MessageQueue | None, selector: QueueSelector | None
) -> bool:
    """Return whether `message` is ordered: it stays on one queue, and none overtakes it."""
    if queue is None and selector is None:
        return bool(message.sharding_key)
    return selector is None or keeps_order(selector)


class RoundRobin:
    """Selector of the queues in turn, as a producer without a selector, with its own round."""

    keeps_order: ClassVar[bool] = False

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Return the next queue."""
        self._next += 1
        return queues[(self._next - 1) % len(queues)]


class ByRandom:
    """Selector of a random queue.

    Args:
        random: Source of randomness, such as `random.Random()`.
    """

    keeps_order: ClassVar[bool] = False

    def __init__(self, random: Random) -> None:
        self._random = random

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Return a random queue."""
        return self._random.choice(queues)


class ByHash:
    """Selector of the queue of a value's hash, always the same while the queues stay the same.

    Args:
        value: Text, hashed as in Java, or a whole number of 32 bits, which is its own hash.
    """

    def __init__(self, value: str | int) -> None:
        self._hash = value if isinstance(value, int) else java_hash(value)

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Return the queue of the value."""
        return queues[abs(self._hash) % len(queues)]


class ByKey:
    """Selector of the queue of the hash of a message's key.

    Args:
        key_of: Function that returns the key of a message. None = the sharding key, else the first
            of the keys.
    """

    def __init__(self, key_of: Callable[[Message], str] | None = None) -> None:
        self._key_of = key_of or _first_key

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Return the queue of the message's key.

        Raises:
            UsageError: The message has no key.
        """
        key = self._key_of(message)
        if not key:
            raise UsageError(f"a message for {message.topic!r} has no key to choose a queue by")
        return queues[abs(java_hash(key)) % len(queues)]


class ByMachineRoom:
    """Selector, in turn, of the queues of brokers in certain machine rooms.

    Args:
        rooms: Beginnings of broker names, such as `("shanghai-",)`.
        elsewhere: Use any queue when no broker of these rooms has one. False = raise an error.
    """

    keeps_order: ClassVar[bool] = False

    def __init__(self, rooms: Collection[str], *, elsewhere: bool = True) -> None:
        if isinstance(rooms, str) or not rooms or not all(rooms):
            raise UsageError("rooms must be a collection of strings, prefixes of broker names")
        self._rooms = tuple(rooms)
        self._elsewhere = elsewhere
        self._round = RoundRobin()

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Return the next queue.

        Raises:
            UsageError: No broker of the rooms has a queue, and `elsewhere` is False.
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
    """Return `queue`, or the choice of `selector` among `queues`.

    Raises:
        UsageError: Both are given, or the choice is no queue of the message's topic.
    """
    if selector is not None:
        if queue is not None:
            raise UsageError("a queue and a selector exclude each other")
        try:
            queue = selector(queues, message)
        except TypeError:
            check_function("selector", selector, 2)
            raise
    if not isinstance(queue, MessageQueue):  # for callers without a type checker
        raise UsageError(f"{queue!r} was chosen for {message.topic!r}, which is no queue")
    if queue.topic != message.topic or not 0 <= queue.queue_id < 1 << 31:
        raise UsageError(f"a message for {message.topic!r} cannot go to {queue}")
    return queue
