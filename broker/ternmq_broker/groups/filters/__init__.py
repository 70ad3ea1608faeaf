"""Filters at the broker: subscriptions as a read applies them, and the filters of groups."""

from ternmq_broker.groups.filters.bloom_bit_maps import FilterBitMaps as FilterBitMaps
from ternmq_broker.groups.filters.bloom_bit_maps import (
    with_room_for_bit_maps as with_room_for_bit_maps,
)
from ternmq_broker.groups.filters.filter_manager import FilterManager as FilterManager
from ternmq_broker.groups.filters.filter_registry import FilterRegistry as FilterRegistry
from ternmq_broker.groups.filters.filter_rules import FilterRules as FilterRules
from ternmq_broker.groups.filters.filter_rules import PullFilter as PullFilter
