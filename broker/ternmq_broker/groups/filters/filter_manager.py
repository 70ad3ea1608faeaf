"""Filters of all consumer groups: their rules, registry and bit maps, wired to each other."""

from ternmq_broker.config import BrokerConfig
from ternmq_broker.groups.filters.bloom_bit_maps import FilterBitMaps
from ternmq_broker.groups.filters.filter_registry import FilterRegistry
from ternmq_broker.groups.filters.filter_rules import FilterRules
from ternmq_broker.state.clients import ClientTable
from ternmq_broker.state.filters import FilterTable
from ternmq_model.clock import Clock
from ternmq_store.message_store import MessageStore


class FilterManager:
    """Rules, registry and bit maps of filters. Owned by `GroupAssembly`.

    Args:
        config: The broker's settings.
        store: Open. It stores bit maps from now on, if the settings say so.
        table: Loaded. Its conditions count as unused until a member subscribes by them.
        clients: Connected clients.
        clock: The broker's.

    Attributes:
        rules: Rules of filters.
        registry: Registry of the conditions of groups.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        table: FilterTable,
        clients: ClientTable,
        clock: Clock,
    ) -> None:
        table.all_dead(now_ms=clock.wall_ms())
        if config.filter_bit_maps_enabled:
            store.keep_bit_maps(FilterBitMaps(table))
        self.rules = FilterRules(
            clients,
            table,
            property_filter_enabled=config.property_filter_enabled,
            retry_filter_enabled=config.retry_filter_enabled,
            bit_maps_enabled=config.filter_bit_maps_enabled,
        )
        self.registry = FilterRegistry(table, clients, clock, log_end=lambda: store.max_physical)
