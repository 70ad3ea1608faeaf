"""Checks that a resource is used only in the process, and on the event loop, that opened it.

A child of `fork()` has all objects of its parent, but none of its threads. An event loop, its
connections and gRPC's state belong to the process that opened them. A child that used them would
wait for missing threads, and take events and bytes from its parent. So an opened resource stores
its process and refuses calls in another one. It also stores its loop, since a task of another loop
would wait for ever.
"""

import asyncio
import os
import sys

from ternmq_model.errors import ClosedError, UsageError

_process_id = os.getpid()  # a system call, too much for every message


def _renew_process_id() -> None:
    global _process_id
    _process_id = os.getpid()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_renew_process_id)


def is_inherited(process_id: int) -> bool:
    """Return whether this process was forked from process `process_id` (0 = none)."""
    return process_id not in (0, _process_id)


def check_process(process_id: int) -> None:
    """Check that this process is `process_id`, unless that is 0.

    Raises:
        ClosedError: This process was forked from that one.
    """
    if process_id not in (0, _process_id):  # `is_inherited` without its call, for every message
        raise ClosedError(
            f"opened in process {process_id}, from which this one ({_process_id}) was forked: "
            "open clients in the child only, or start children by 'spawn' (docs/howto/fork.md)"
        )


def check_loop(loop: asyncio.AbstractEventLoop | None) -> None:
    """Check that no other loop than `loop` runs in this thread, unless that is None.

    Raises:
        UsageError: Another loop runs in this thread.
    """
    if loop is None:
        return
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if running is not loop:
        raise UsageError(
            "the client belongs to another event loop: use it on the loop that entered it "
            "(asyncio.run_coroutine_threadsafe), or a blocking client"
        )
