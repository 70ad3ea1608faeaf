"""Changes of the route table, as lines for the log."""

from typing import NamedTuple


class RouteChange(NamedTuple):
    """A line for the log: template and values.

    They are separate, so that the log can count events by template and show values as members.
    """

    template: str
    """Template with the names of the values: `broker=%s`."""

    args: tuple[object, ...]
    """Values, one for each `%s`."""

    def __str__(self) -> str:
        return self.template % self.args
