"""Bounds of epochs, for NameServers, members and tools. Pure.

An invented high epoch would end every master with a lower one. So an epoch from another process is
accepted only if restarts and promotions could have led to it. A NameServer checks epochs itself, so
every legal epoch from a NameServer is accepted. See docs/adr/0017-numbers-of-epochs.md.
"""

from typing import Final

EPOCH_STEP_MAX: Final = 10**9
"""Most by which an epoch may exceed the highest known one of the broker name: a thousand
promotions."""

EPOCH_MAX: Final = (1 << 62) - 2 * EPOCH_STEP_MAX
"""Highest legal epoch. Older versions accept up to 2^62, which is above the next epochs of this one
after a restart or a promotion."""

EPOCH_STORED_MAX: Final = (1 << 63) - 1
"""Highest epoch in a file of an older version."""

REPAIR_COMMAND: Final = "ternmq broker repair-epoch"
"""Command that replaces an invented epoch."""


def doubt_of(number: int, known: int = EPOCH_MAX) -> str:
    """Return the reason against an epoch; "" = it is accepted.

    Args:
        number: Epoch from another process.
        known: Highest known epoch of the broker name, 0 = none. For an epoch from a NameServer the
            default, with which every legal epoch is accepted.
    """
    if number > EPOCH_MAX:
        reason = f"is above {EPOCH_MAX}, the highest possible epoch"
    elif number > known + EPOCH_STEP_MAX:
        reason = f"is more than {EPOCH_STEP_MAX} above {known}, the highest known epoch"
    else:
        return ""
    return (
        f"epoch {number} {reason}: it is rejected (if it is real or stored, run {REPAIR_COMMAND})"
    )
