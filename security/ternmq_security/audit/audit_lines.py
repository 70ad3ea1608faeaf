"""Lines of the audit trail. Pure."""

from datetime import UTC, datetime
from typing import Final

from ternmq_model.printable_text import printable_json
from ternmq_remoting.security_event import SecurityEvent

TEXT_CHARS_MAX: Final = 512
DETAILS_CHARS_MAX: Final = 2048
"""With 12 bytes for an escaped character, the longest line has 44 KiB: it fits into each file."""


def line_of(event: SecurityEvent, wall_ms: int, count: int = 1) -> str:
    """Return the line of an event: an object in ASCII, with a line feed.

    Args:
        event: Event.
        wall_ms: Time of the event, or of the last of several like it, Unix milliseconds.
        count: Number of equal events for which the line stands.
    """
    return _line(
        wall_ms,
        event=event.kind.value,
        user=event.user,
        claimed=event.claimed,
        certificate=_cut(event.certificate, TEXT_CHARS_MAX),
        address=str(event.address),
        action=event.action,
        resource=_cut(event.resource, TEXT_CHARS_MAX),
        outcome=event.outcome,
        reason=_cut(event.reason, TEXT_CHARS_MAX),
        details=_cut(event.details, DETAILS_CHARS_MAX),
        count=count,
    )


def lost_line(wall_ms: int, count: int) -> str:
    """Return the line that stands for `count` lines that were lost."""
    return _line(wall_ms, event="lost", count=count)


def _line(wall_ms: int, **members: object) -> str:
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return printable_json({"time": time, **members}, ensure_ascii=True) + "\n"


def _cut(text: str | None, chars_max: int) -> str | None:
    return text if text is None or len(text) <= chars_max else f"{text[:chars_max]}..."
