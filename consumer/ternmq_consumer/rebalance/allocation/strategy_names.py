"""Strategies by their names in RocketMQ. Pure."""

from typing import Final

from ternmq_consumer.rebalance.allocation.averagely import allocate_averagely, allocate_by_circle
from ternmq_consumer.rebalance.allocation.consistent_hash import AllocateByConsistentHash
from ternmq_consumer.rebalance.allocation.machine_room import AllocateNearby
from ternmq_consumer.rebalance.allocation.strategy import AllocationStrategy
from ternmq_model.arguments import fault_of_function
from ternmq_model.errors import ConfigError

SETTING: Final = "consumer.allocate"
NEARBY_PREFIX: Final = "MACHINE_ROOM_NEARBY-"

_SIMPLE: Final[dict[str, AllocationStrategy]] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
    "CONSISTENT_HASH": AllocateByConsistentHash(),
}
_WITH_ARGUMENTS: Final = {
    "CONFIG": "AllocateByConfiguration(queues)",
    "MACHINE_ROOM": "AllocateByMachineRoom(rooms)",
    "MACHINE_ROOM_NEARBY": f"'{NEARBY_PREFIX}<inner strategy>', or AllocateNearby(inner)",
}
"""Objects to use in place of names of strategies that need arguments."""


def strategy_of(allocate: AllocationStrategy | str) -> AllocationStrategy:
    """Return `allocate` itself, or the strategy with that name.

    Args:
        allocate: `AVG`, `AVG_BY_CIRCLE`, `CONSISTENT_HASH`, or `MACHINE_ROOM_NEARBY-` and one of
            these; or a strategy.

    Raises:
        ConfigError: The name is unknown or needs arguments, or the object cannot be called.
    """
    if not isinstance(allocate, str):
        if fault := fault_of_function(allocate, 3):
            raise ConfigError(SETTING, allocate, f"{fault}, or the name of a strategy")
        return allocate
    if allocate.startswith(NEARBY_PREFIX):
        inner = _SIMPLE.get(allocate.removeprefix(NEARBY_PREFIX))
        if inner is not None:
            return AllocateNearby(inner)
    elif allocate in _SIMPLE:
        return _SIMPLE[allocate]
    elif allocate in _WITH_ARGUMENTS:
        raise ConfigError(SETTING, allocate, f"needs arguments: give {_WITH_ARGUMENTS[allocate]}")
    known = ", ".join([*_SIMPLE, f"{NEARBY_PREFIX}<one of these>"])
    raise ConfigError(SETTING, allocate, f"is no strategy; the strategies are {known}")
