"""Shares of a budget in proportion to demands. Pure."""

from collections.abc import Mapping
from typing import TypeVar

KeyT = TypeVar("KeyT")


def apportion(demands: Mapping[KeyT, int], budget: int) -> dict[KeyT, int]:
    """Return the share of each demand in `budget`, in proportion.

    Args:
        demands: Demand of each key, at least 0.
        budget: Sum of all shares at most, at least 0.

    Returns:
        For each key at most its demand and at least 1 if the budget allows it; else 1 for the
        first keys. The sum is the budget, or the sum of the demands if that is less.
    """
    waiting = {key: amount for key, amount in demands.items() if amount > 0}
    total = sum(waiting.values())
    if total <= budget:
        return dict(demands)
    shares = dict.fromkeys(demands, 0)
    if budget < len(waiting):
        return shares | dict.fromkeys(list(waiting)[:budget], 1)
    # Each key gets 1; the rest of the budget follows the rest of the demands.
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
