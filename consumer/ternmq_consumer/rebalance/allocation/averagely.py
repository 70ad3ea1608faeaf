"""Equal shares: neighbouring queues, or every n-th one. Pure.

7 queues, 3 members    averagely    0 1 2 | 3 4 | 5 6
                       by circle    0 3 6 | 1 4 | 2 5
"""

from collections.abc import Sequence

from ternmq_model.queue import MessageQueue


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


def allocate_by_circle(
    queues: Sequence[MessageQueue], members: Sequence[str], member: str
) -> Sequence[MessageQueue]:
    """Return every n-th queue for the n members, beginning at the place of `member`.

    Sizes are those of `allocate_averagely`; each member has queues of more brokers, so that one
    which is slow is felt by all alike. Arguments as there.

    Source:
        RocketMQ `AllocateMessageQueueAveragelyByCircle`.
    """
    if member not in members:
        return queues[:0]
    return queues[members.index(member) :: len(members)]
