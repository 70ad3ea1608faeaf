"""Processes made by `fork()`: a child has none of its parent's threads, but all of its objects.

An event loop, its connections and gRPC's own state belong to the process that began them. A child
that went on using them would wait for threads that it does not have, and take events and bytes from
its parent. So what is opened remembers its process, and refuses to be used in another one.
"""

import os

from ternmq_model.errors import ClosedError


def is_inherited(process_id: int) -> bool:
    """Tell whether what process `process_id` opened (0 = nobody did) came here by a fork."""
    return process_id not in (0, os.getpid())


def check_process(process_id: int) -> None:
    """Do nothing in the process `process_id`, or where that is 0: nobody opened anything.

    Raises:
        ClosedError: This process was forked from it.
    """
    if is_inherited(process_id):
        raise ClosedError(
            f"opened in process {process_id}, from which this one ({os.getpid()}) was forked: "
            "open clients in the child only, or start children by 'spawn' (docs/howto/fork.md)"
        )
