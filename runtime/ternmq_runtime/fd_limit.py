"""The limit of open files and connections of a process (`RLIMIT_NOFILE`)."""

import contextlib
import resource


def raise_fd_limit() -> int:
    """Raise this process's limit of open files to the hard limit; return the new limit.

    A broker keeps one for each queue, and the usual limit, 1024, is meant for processes that
    `select`, which an event loop here does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems tell a hard limit that they do not grant.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft
