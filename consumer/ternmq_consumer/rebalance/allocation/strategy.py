"""The type of a strategy: a function that members compute alone. Pure.

Members never talk to each other: each computes the whole plan alone and takes its own part. So a
strategy may depend on its arguments and its own settings only, which all members of a group have
alike, never on a clock, on randomness or on local load, or two members would own one queue, or none
would.
"""

from collections.abc import Callable, Sequence

from ternmq_model.queue import MessageQueue

AllocationStrategy = Callable[[Sequence[MessageQueue], Sequence[str], str], Sequence[MessageQueue]]
"""Takes all queues of one topic (sorted), all members (client ids, sorted, each once) and one
member; returns its share."""
