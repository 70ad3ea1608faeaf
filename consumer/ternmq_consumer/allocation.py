"""Which queues a member of a group consumes. Pure.

Members never talk to each other: each computes the whole plan alone and takes its own part. So a
strategy may depend on its arguments only, never on a clock, on randomness or on local load, or two
members would own one queue, or none would.
"""

from collections.abc import Callable, Sequence

from ternmq_model.queue import MessageQueue

AllocationStrategy = Callable[[Sequence[MessageQueue], Sequence[str], str], Sequence[MessageQueue]]
"""Takes all queues (sorted), all members (sorted, each once) and one member; returns its share."""


def allocate_averagely(
    queues: Sequence[MessageQueue], members: Sequence[str], member: str
) -> Sequence[MessageQueue]:
    """Return the neighbouring queues that belong to `member`.

    Args:
        queues: Every queue of the topic, sorted.
        members: Every live member of the group, sorted, each once.
        member: Who asks. One that is not among `members` gets nothing.

    Returns:
        A slice of `queues`. The shares of all members together are `queues`, without overlap, and
        their sizes differ by one at most; the larger shares come first.

    Source:
        RocketMQ `AllocateMessageQueueAveragely`.
    """
    if member not in members:
        return queues[:0]
    place = members.index(member)
    size, larger_shares = divmod(len(queues), len(members))
    begin = place * size + min(place, larger_shares)
    return queues[begin : begin + size + (place < larger_shares)]
