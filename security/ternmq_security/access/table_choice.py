"""Choice between two tables of users: which one a service has. Pure."""

from ternmq_security.access.access_table import AccessTable, Doubt


def is_newer(a: AccessTable, b: AccessTable) -> bool:
    """Return whether `a` replaces `b`: by its version, or at equal versions by its digest."""
    return (a.version, a.digest) > (b.version, b.digest)


def replaces(a: AccessTable, b: AccessTable) -> bool:
    """Return whether a service whose table is `b` takes `a` from another service."""
    if b.doubt is Doubt.UNASKED:
        return a.doubt is not Doubt.UNASKED
    if b.doubt is Doubt.REFUSED:
        return bool(a.users)
    if a.doubt is not Doubt.NONE:
        return a.doubt is Doubt.REFUSED and not b.users
    if bool(a.users) is not bool(b.users):
        return bool(a.users)
    return is_newer(a, b) and a.origin == b.origin
