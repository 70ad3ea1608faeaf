"""Shares of a budget in proportion to what there is. Pure."""

from collections.abc import Mapping
from typing import TypeVar

KeyT = TypeVar("KeyT")


def apportion(wanted: Mapping[KeyT, int], budget: int) -> dict[KeyT, int]:
    """Return of each of `wanted` its part of `budget`, in proportion, nobody left out.

    Args:
        wanted: How much each would take; at least 0.
        budget: How much all together may take; at least 0.

    Returns:
        For each at most what it wants and at least 1, if the budget allows it; else 1 for the
        first ones. Together the budget, or all that is wanted when that is less.
    """
    waiting = {key: amount for key, amount in wanted.items() if amount > 0}
    total = sum(waiting.values())
    if total <= budget:
        return dict(wanted)
    shares = dict.fromkeys(wanted, 0)
    if budget < len(waiting):
        return shares | dict.fromkeys(list(waiting)[:budget], 1)
    # One for each first, then the rest in proportion to the rest.
    rest, total_rest = budget - len(waiting), total - len(waiting)
    left_over = rest
    remainders: list[tuple[int, KeyT]] = []
    for key, amount in waiting.items():
        part, remainder = divmod((amount - 1) * rest, total_rest)
        shares[key] = 1 + part
        left_over -= part
        remainders.append((remainder, key))
    remainders.sort(key=lambda pair: -pair[0])
    for _, key in remainders[:left_over]:
        shares[key] += 1
    return shares
