"""Lines of the audit trail. Pure."""

from dataclasses import fields, replace
from typing import Final

from ternmq_model.clock import utc_text
from ternmq_model.printable_text import printable_json
from ternmq_remoting.security_event import SecurityEvent

TEXT_CHARS_MAX: Final = 512
DETAILS_CHARS_MAX: Final = 2048
"""With 12 bytes for an escaped character, the longest line has 44 KiB: it fits into each file."""


def shortened(event: SecurityEvent) -> SecurityEvent:
    """Return the event with texts of bounded length."""
    return replace(
        event,
        certificate=_cut(event.certificate, TEXT_CHARS_MAX),
        resource=_cut(event.resource, TEXT_CHARS_MAX),
        reason=_cut(event.reason, TEXT_CHARS_MAX),
        details=_cut(event.details, DETAILS_CHARS_MAX),
    )


def line_of(event: SecurityEvent, wall_ms: int, count: int = 1) -> str:
    """Return the line of `count` equal, shortened events, the last one at `wall_ms`.

    The line is a JSON object in ASCII, with a line feed.
    """
    members = {each.name: getattr(event, each.name) for each in fields(event)}
    members["address"] = str(event.address)
    return _line(wall_ms, event=members.pop("kind"), **members, count=count)


def lost_line(wall_ms: int, count: int) -> str:
    """Return the line that stands for `count` lines that were lost."""
    return _line(wall_ms, event="lost", count=count)


def _line(wall_ms: int, **members: object) -> str:
    line = {"time": utc_text(wall_ms / 1000), **members}
    return printable_json(line, ensure_ascii=True) + "\n"


def _cut(text: str | None, chars_max: int) -> str | None:
    return text if text is None or len(text) <= chars_max else f"{text[:chars_max]}..."
