"""Limit of open files and connections of a process (`RLIMIT_NOFILE`)."""

import contextlib
import resource


def raise_fd_limit() -> int:
    """Raise this process' limit of open files to the hard limit. Return the new limit.

    A broker has an open file for each queue. The usual limit, 1024, is for processes that use
    `select`, which these event loops do not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems report a hard limit that they do not grant.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft
