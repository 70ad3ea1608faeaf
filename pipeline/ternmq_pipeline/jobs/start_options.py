"""Start of a job in a topic, as options of the source. Pure."""

from typing import Final

from ternmq_model.errors import UsageError

START_POSITIONS: Final = ("earliest", "latest")


def start_options(start: str, *, option: str) -> dict[str, str]:
    """Return the options of a stream that begins there.

    Args:
        start: `earliest`, `latest` or Unix milliseconds. A time later than all messages is the
            end of what is there.
        option: Its name, for errors.

    Raises:
        UsageError: It is none of these.
    """
    if start in START_POSITIONS:
        return {"startingOffsets": start}
    if start.isascii() and start.isdecimal() and len(start) <= 18:
        return {"startingTimestamp": start, "startingOffsetsByTimestampStrategy": "latest"}
    raise UsageError(f"{option}={start!r}: must be earliest, latest or Unix milliseconds")
