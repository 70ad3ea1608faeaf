"""Equal shares of neighbouring queues, or of every n-th queue. Pure.

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
        queues: All queues of the topic, sorted.
        members: All live members of the group, sorted, each once.
        member: Member of the share. A member outside `members` gets no queue.

    Returns:
        Slice of `queues`. The shares of all members are disjoint and cover `queues`. Their sizes
        differ by at most one; the larger shares come first.

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
    """Return every n-th queue for the n members, from the position of `member` on.

    Arguments and sizes are those of `allocate_averagely`. Each member has queues of more brokers,
    so that a slow broker affects all members equally.

    Source:
        RocketMQ `AllocateMessageQueueAveragelyByCircle`.
    """
    if member not in members:
        return queues[:0]
    return queues[members.index(member) :: len(members)]
