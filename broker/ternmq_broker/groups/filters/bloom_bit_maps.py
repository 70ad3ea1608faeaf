"""Bit maps beside the units of messages: a bit is set for each group whose condition passes.

Source: RocketMQ `CommitLogDispatcherCalcBitMap`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ternmq_broker.config import BrokerConfig
from ternmq_broker.state.filters import BLOOM, ConsumerFilter, FilterTable
from ternmq_model.errors import ConfigError
from ternmq_model.properties import decode_visible
from ternmq_model.record.batch import RecordBatch
from ternmq_model.sql92 import Condition, compile_condition
from ternmq_store.config import StoreConfig

_STEPS_MAX: Final = 128
"""Limit on the parts of a condition that is evaluated while messages are stored; each message then
costs about 20 µs."""


class FilterBitMaps:
    """Bit maps of records by the conditions of all groups that read their topic.

    Owned by the store's thread.
    """

    def __init__(self, table: FilterTable) -> None:
        self._table = table

    def __call__(self, batch: RecordBatch) -> Sequence[bytes]:
        """Return a bit map for every record; empty where no group filters its topic."""
        maps = [b""] * len(batch)
        for topic, _, rows in batch.queues:
            found = self._table.alive(topic)
            if not found:
                continue
            conditions, always = _conditions(found)
            ends = batch.starts + batch.sizes
            for row in rows.tolist():
                data = batch.data[int(batch.properties[row]) : int(ends[row])]
                properties = decode_visible(data)
                bits = always
                for condition, mask in conditions:
                    if condition.matches(properties):
                        bits |= mask
                maps[row] = BLOOM.pack(bits)
        return maps


def _conditions(found: Sequence[ConsumerFilter]) -> tuple[list[tuple[Condition, int]], int]:
    """Return conditions with their bits, and the bits of conditions that are too long.

    Every message counts as a match of a condition that is too long; reads evaluate it.
    """
    conditions: list[tuple[Condition, int]] = []
    always = 0
    for one in found:
        condition, mask = compile_condition(one.expression), _mask(one.bloom_positions)
        if condition.steps > _STEPS_MAX:
            always |= mask
        else:
            conditions.append((condition, mask))
    return conditions, always


def _mask(positions: Sequence[int]) -> int:
    return sum({1 << position for position in positions})


def fit_bit_maps(config: BrokerConfig, store: StoreConfig) -> StoreConfig:
    """Return the store's settings, with space for bit maps if they are enabled.

    Raises:
        ConfigError: Bit maps are enabled, and the store has no extension units.
    """
    if not config.filter_bit_maps_enabled:
        return store
    if not store.consume_queue_ext_enabled:
        rule = "needs store.consume_queue_ext_enabled"
        raise ConfigError("broker.filter_bit_maps_enabled", config.filter_bit_maps_enabled, rule)
    bits = max(store.consume_queue_ext_bit_map_bits, BLOOM.bits)
    return replace(store, consume_queue_ext_bit_map_bits=bits)
