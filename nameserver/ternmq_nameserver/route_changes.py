"""Changes of the route table, as lines for the log."""

from typing import NamedTuple


class RouteChange(NamedTuple):
    """A line for the log, not yet put together.

    Apart, so that the log counts different events apart, and shows each named value as a member.
    """

    template: str
    """Names its values: `broker=%s`."""

    args: tuple[object, ...]
    """One for each `%s`."""

    def __str__(self) -> str:
        return self.template % self.args
