"""Bounds of the numbers of epochs: one rule for NameServers, members and tools. Pure.

A number that rises for good is a weapon: who makes up a high one ends every master below it. So
what a stranger tells is taken only when restarts and promotions could have led to it. A NameServer
has looked at what it tells, so every number that can be is believed of it.
docs/adr/0017-numbers-of-epochs.md.
"""

from typing import Final

EPOCH_STEP_MAX: Final = 10**9
"""Most by which a number may exceed the highest that is known of the broker name: a thousand
promotions."""

EPOCH_MAX: Final = (1 << 62) - 2 * EPOCH_STEP_MAX
"""Highest number that is given, taken or kept. Older versions take up to 2^62: what a restart or a
promotion makes of this one is still below that."""

EPOCH_STORED_MAX: Final = (1 << 63) - 1
"""Highest number that a file of an older version may hold."""

REPAIR_COMMAND: Final = "ternmq broker repair-epoch"
"""The way back from a number that is made up."""


def doubt_of(number: int, known: int = EPOCH_MAX) -> str:
    """Return why a number is not taken; "" when it is.

    Args:
        number: That somebody tells.
        known: The highest number of the broker name that is known, 0 for none, where a stranger may
            have told it. Of a NameServer every number is taken that can be.
    """
    if number > EPOCH_MAX:
        reason = f"is above {EPOCH_MAX}, the highest that can be"
    elif number > known + EPOCH_STEP_MAX:
        reason = f"is more than {EPOCH_STEP_MAX} above {known}, the highest that is known"
    else:
        return ""
    return f"epoch {number} {reason}: it is not taken (if it is real or is kept: {REPAIR_COMMAND})"
