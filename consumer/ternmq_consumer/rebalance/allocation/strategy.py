"""Type of allocation strategies. Pure.

Members do not talk to each other: each computes all shares alone and takes its own. So a strategy
depends only on its arguments and its settings, which are equal for all members of a group. With a
clock, randomness or local load, a queue could have two owners or none.
"""

from collections.abc import Callable, Sequence

from ternmq_model.queue import MessageQueue

AllocationStrategy = Callable[[Sequence[MessageQueue], Sequence[str], str], Sequence[MessageQueue]]
"""Function of all queues of one topic (sorted), all members (client ids, sorted, each once) and one
member. It returns the share of that member."""
